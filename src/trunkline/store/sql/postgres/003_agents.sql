-- Which agent a task is for, its parent, and what it waits for while it is parked (`wake_at`, else NULL).
-- Tasks written before agents had ids have '' and belong to the agent at the origin.
-- Nothing is renamed: replicas of the version before go on writing until they are replaced.
ALTER TABLE tasks
    ADD COLUMN agent text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN parent text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN child text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN wake_at bigint;

-- What is not ended, by all that a search for work compares: nobody passes over parked or living tasks.
DROP INDEX tasks_running;
CREATE INDEX tasks_open ON tasks (agent, state, node, wake_at) WHERE state <= 4;
DROP INDEX tasks_ended;
CREATE INDEX tasks_ended ON tasks (agent, status_at, task_id) WHERE state >= 5;
CREATE INDEX tasks_by_parent ON tasks (parent) WHERE parent <> '';
CREATE INDEX tasks_open_children ON tasks (parent) WHERE parent <> '' AND state <= 4;
CREATE INDEX tasks_awaiting ON tasks (child) WHERE child <> '';

-- The ids of the agents that a node carries.
ALTER TABLE nodes ADD COLUMN agents text[] NOT NULL DEFAULT '{}';

-- `xid` is the transaction that wrote it last, by which a mirror reads only what may be new. A deleted
-- document stays for a day with `gone_at`, for the mirrors that have not heard of it.
ALTER TABLE docs
    ADD COLUMN xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    ADD COLUMN gone_at bigint;
CREATE INDEX docs_by_change ON docs (kind, xid);
CREATE INDEX docs_gone ON docs (gone_at) WHERE gone_at IS NOT NULL;

-- A trigger, so that what a replica of the version before writes is seen too.
CREATE FUNCTION docs_changed() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    NEW.xid := pg_current_xact_id();
    RETURN NEW;
END $$;
CREATE TRIGGER docs_changed BEFORE UPDATE ON docs FOR EACH ROW EXECUTE FUNCTION docs_changed();
