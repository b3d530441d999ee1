-- The log, one row per append: its events as a JSON array, `seq` that of the last one. `id` counts
-- events in commit order over all tasks and is the last one's too, so the table grows at its end
-- only. `task` is tasks.num, because an index of small integers dirties a third of the pages that
-- one of 36-character ids does.
CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    task INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE UNIQUE INDEX events_by_task ON events (task, seq);

-- Who a task is (num, tenant, task_id: written once) and its head (the rest: rebuildable from
-- the log, NULL until a head was written). A task id exists once, whatever the tenant.
-- `state` is a number (states.py): 1 and 2 are submitted and working, 5 and more are ended.
-- `context_id` is NULL in a head whose context is named after its task, which is the usual one.
CREATE TABLE tasks (
    num INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    task_id TEXT NOT NULL,
    context_id TEXT,
    owner TEXT,
    state INTEGER,
    status_at INTEGER,
    seq INTEGER,
    node TEXT
);
CREATE UNIQUE INDEX tasks_by_id ON tasks (task_id);
-- With the state, so that counting and filtering a list stay inside the index; without the task id,
-- by which only tasks of one millisecond have to be sorted.
CREATE INDEX tasks_by_owner ON tasks (tenant, owner, status_at, state);
-- Without status_at on purpose: a change of status does not touch it, and contexts are small.
CREATE INDEX tasks_by_context ON tasks (tenant, context_id) WHERE context_id IS NOT NULL;
CREATE INDEX tasks_running ON tasks (state) WHERE state <= 2;

-- `task` is tasks.num. Invariant: a num is never given twice (marks), so a key cannot name a stranger.
CREATE TABLE dedup (
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    task INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    digest BLOB NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;

-- Settled deliveries are deleted, dead ones kept for whoever looks (due is then NULL).
CREATE TABLE outbox (
    tenant TEXT NOT NULL,
    task_id TEXT NOT NULL,
    target TEXT NOT NULL,
    seq INTEGER NOT NULL,
    id TEXT NOT NULL,
    due INTEGER,
    lease_until INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, task_id, target, seq, id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX outbox_by_id ON outbox (id);
CREATE INDEX outbox_by_due ON outbox (due) WHERE due IS NOT NULL;

CREATE TABLE docs (
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    rev INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (tenant, kind, id)
) WITHOUT ROWID;

-- These three hold nothing of a tenant: processes, instants and high-water marks.
CREATE TABLE nodes (id TEXT PRIMARY KEY, beat INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE fires (
    schedule TEXT NOT NULL,
    planned_at INTEGER NOT NULL,
    PRIMARY KEY (schedule, planned_at)
) WITHOUT ROWID;
CREATE TABLE marks (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
