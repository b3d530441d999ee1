"""Many tenants on one hub: who they are, what each may use, and what operators did with them."""
