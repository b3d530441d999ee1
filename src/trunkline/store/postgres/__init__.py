"""The scale-out store: PostgreSQL through asyncpg."""
