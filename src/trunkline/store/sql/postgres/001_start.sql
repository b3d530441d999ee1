-- Every table with a tenant has row-level security, forced on its owner too: a session sees the rows
-- of the tenant in its setting `trunkline.tenant`, and `*` (the writer, sweeps) sees all of them.
-- Superusers and roles with BYPASSRLS are not bound by it: let the store log in as neither.

CREATE FUNCTION now_ms() RETURNS bigint
LANGUAGE sql VOLATILE
RETURN (extract(epoch FROM clock_timestamp()) * 1000)::bigint;

-- The log, one row per append: its events as a JSON array (text as bytes, never jsonb, which refuses
-- NUL), `first` and `last` the seqs it covers. The primary key is the fence: of two appends after one
-- seq the second finds its place taken. `mark` is an append's own number, by which it is known again
-- when its acknowledgement was lost. `xid` lets a tail stop below everything still being written.
CREATE TABLE events (
    task_id text COLLATE "C" NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    at bigint NOT NULL,
    mark bigint NOT NULL,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    tenant text COLLATE "C" NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (task_id, first)
) PARTITION BY HASH (task_id);
CREATE INDEX events_by_xid ON events (xid);

-- Heads: rebuildable from the log. A task id exists once, whatever the tenant.
-- `state` is a number (states.py): 1 and 2 are submitted and working, 5 and more are ended.
CREATE TABLE tasks (
    task_id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    context_id text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    node text COLLATE "C" NOT NULL,
    status_at bigint NOT NULL,
    seq bigint NOT NULL,
    state smallint NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX tasks_by_owner ON tasks (tenant, owner, status_at DESC, task_id DESC);
CREATE INDEX tasks_by_status ON tasks (tenant, status_at DESC, task_id DESC);
CREATE INDEX tasks_by_context ON tasks (tenant, context_id);
CREATE INDEX tasks_running ON tasks (node, status_at) WHERE state <= 2;
CREATE INDEX tasks_ended ON tasks (status_at, task_id) WHERE state >= 5;

CREATE TABLE dedup (
    tenant text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    task_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    expires_at bigint NOT NULL,
    digest bytea NOT NULL,
    PRIMARY KEY (tenant, key)
);
CREATE INDEX dedup_by_task ON dedup (task_id);
CREATE INDEX dedup_by_end ON dedup (expires_at);

-- Settled deliveries are deleted, dead ones kept for whoever looks (due is then NULL).
CREATE TABLE outbox (
    tenant text COLLATE "C" NOT NULL,
    task_id text COLLATE "C" NOT NULL,
    target text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    id text COLLATE "C" NOT NULL UNIQUE,
    due bigint,
    lease_until bigint NOT NULL DEFAULT 0,
    attempts bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, task_id, target, seq, id)
) WITH (fillfactor = 70);
CREATE INDEX outbox_by_due ON outbox (due, id) WHERE due IS NOT NULL;

CREATE TABLE docs (
    tenant text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    rev bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (tenant, kind, id)
);

-- These three hold nothing of a tenant: processes, instants and high-water marks.
-- `key` is the advisory lock that a living node's session holds; `gone` has left in peace.
CREATE TABLE nodes (
    id text COLLATE "C" PRIMARY KEY,
    key bigint NOT NULL,
    beat bigint NOT NULL,
    gone boolean NOT NULL DEFAULT false
);
CREATE TABLE fires (
    schedule text COLLATE "C" NOT NULL,
    planned_at bigint NOT NULL,
    PRIMARY KEY (schedule, planned_at)
);
CREATE TABLE marks (name text COLLATE "C" PRIMARY KEY, value bigint NOT NULL);

DO $$
DECLARE
    each text;
BEGIN
    FOR part IN 0..15 LOOP
        EXECUTE format(
            'CREATE TABLE events_%s PARTITION OF events FOR VALUES WITH (MODULUS 16, REMAINDER %s)',
            lpad(part::text, 2, '0'), part
        );
    END LOOP;
    FOR each IN
        SELECT c.table_name FROM information_schema.columns AS c
        WHERE c.table_schema = current_schema() AND c.column_name = 'tenant'
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', each);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', each);
        EXECUTE format(
            'CREATE POLICY of_tenant ON %I USING ('
            'tenant = (SELECT current_setting(''trunkline.tenant'', true)) '
            'OR (SELECT current_setting(''trunkline.tenant'', true)) = ''*'')', each
        );
    END LOOP;
END $$;
