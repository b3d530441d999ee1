-- Which agent a task is for, its parent, and what it waits for while it is parked (`wake_at`, else NULL).
-- Tasks written before agents had ids have '' and belong to the agent at the origin.
ALTER TABLE tasks ADD COLUMN agent TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN parent TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN child TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN wake_at INTEGER;

DROP INDEX tasks_by_owner;
CREATE INDEX tasks_by_owner ON tasks (tenant, owner, status_at, state, agent);
-- What is not ended: running tasks of an agent, those due to wake, and those that wait for their agent.
-- Ten thousand that are parked lie beyond `wake_at <= now`, so nobody who looks for work passes over them.
DROP INDEX tasks_running;
CREATE INDEX tasks_open ON tasks (agent, state, wake_at) WHERE state <= 4;
CREATE INDEX tasks_by_parent ON tasks (parent) WHERE parent <> '';
CREATE INDEX tasks_open_children ON tasks (parent) WHERE parent <> '' AND state <= 4;
CREATE INDEX tasks_awaiting ON tasks (child) WHERE child <> '';

-- The ids of the agents that a node carries, as a JSON array.
ALTER TABLE nodes ADD COLUMN agents TEXT NOT NULL DEFAULT '[]';

-- `changed` numbers the writes of a kind, so that a mirror reads only what is new. A deleted document
-- stays for a day with `gone_at`, for the mirrors that have not heard of it.
ALTER TABLE docs ADD COLUMN changed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE docs ADD COLUMN gone_at INTEGER;
UPDATE docs SET changed = (
    SELECT count(*) FROM docs AS d WHERE d.kind = docs.kind AND (d.tenant, d.id) <= (docs.tenant, docs.id)
);
CREATE INDEX docs_by_change ON docs (kind, changed);
CREATE INDEX docs_gone ON docs (gone_at) WHERE gone_at IS NOT NULL;
