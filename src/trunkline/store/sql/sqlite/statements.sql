-- Named statements. One marked with * takes any number of rows: its (?, …) is repeated per row.
-- Statements that find a task by its id alone are the writer's, which compares the tenant itself.

-- name: find_tasks*
WITH wanted (task_id) AS (VALUES (?))
SELECT t.task_id, t.num, t.tenant, (SELECT max(seq) FROM events WHERE task = t.num)
FROM wanted CROSS JOIN tasks AS t ON t.task_id = wanted.task_id;

-- name: find_keys*
WITH wanted (tenant, key) AS (VALUES (?, ?))
SELECT d.tenant, d.key, d.task_id, d.seq, d.digest, d.expires_at
FROM wanted CROSS JOIN dedup AS d ON d.tenant = wanted.tenant AND d.key = wanted.key;

-- name: add_events*
INSERT INTO events (id, task, seq, at, body) VALUES (?, ?, ?, ?, ?);

-- name: put_tasks*
INSERT INTO tasks (num, tenant, task_id, context_id, owner, state, status_at, seq, node)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (num) DO UPDATE SET
    context_id = excluded.context_id, owner = excluded.owner, state = excluded.state,
    status_at = excluded.status_at, seq = excluded.seq, node = excluded.node;

-- name: put_keys*
INSERT OR REPLACE INTO dedup (tenant, key, task_id, seq, digest, expires_at) VALUES (?, ?, ?, ?, ?, ?);

-- name: add_deliveries*
INSERT INTO outbox (tenant, task_id, target, seq, id, due) VALUES (?, ?, ?, ?, ?, ?);

-- name: ends
SELECT
    (SELECT coalesce(max(num), 0) FROM tasks),
    max(
        (SELECT coalesce(max(id), 0) FROM events),
        (SELECT coalesce(max(value), 0) FROM marks WHERE name = 'events')
    );

-- name: mark_end
INSERT OR REPLACE INTO marks (name, value) VALUES ('events', ?);

-- A page comes as one row of JSON: every row fetched costs a hand-over of the interpreter lock.
-- name: read
SELECT '[' || group_concat('{"seq":' || seq || ',"at":' || at || ',"event":' || body || '}') || ']'
FROM (
    SELECT e.seq, e.at, e.body
    FROM tasks AS t CROSS JOIN events AS e ON e.task = t.num
    WHERE t.task_id = ? AND t.tenant = ? AND e.seq > ?
    ORDER BY e.seq
    LIMIT ?
);

-- name: tail
SELECT max(id), '[' || group_concat(
    '{"tenant":' || json_quote(tenant) || ',"task_id":' || json_quote(task_id)
    || ',"recorded":{"seq":' || seq || ',"at":' || at || ',"event":' || body || '}}'
) || ']'
FROM (
    SELECT e.id, t.tenant, t.task_id, e.seq, e.at, e.body
    FROM events AS e CROSS JOIN tasks AS t ON t.num = e.task
    WHERE e.id > ?
    ORDER BY e.id
    LIMIT ?
);

-- name: head
SELECT task_id, context_id, owner, state, status_at, seq, node
FROM tasks
WHERE task_id = ? AND tenant = ? AND state IS NOT NULL;

-- The marks are filled with the filters below that a caller asked for. An owner is there when a
-- head is, and its index knows it.
-- name: heads
SELECT
    (SELECT count(*) FROM tasks WHERE tenant = :tenant AND owner IS NOT NULL /*filters*/),
    (
        SELECT json_group_array(json_object(
            'task_id', task_id, 'context_id', context_id, 'owner', owner, 'state', state,
            'status_at', status_at, 'seq', seq, 'node', node
        ))
        FROM (
            SELECT task_id, context_id, owner, state, status_at, seq, node
            FROM tasks
            WHERE tenant = :tenant AND owner IS NOT NULL /*filters*/ /*after*/
            ORDER BY status_at DESC, task_id DESC
            LIMIT :limit
        )
    );

-- name: filter_owner
AND owner = :owner;

-- A context is small and an owner may be everybody: the plus sign keeps the owner's index out.
-- name: filter_context
AND context_id = :context_id;

-- name: filter_owner_in_context
AND +owner = :owner;

-- name: filter_state
AND state = :state;

-- name: filter_status_from
AND status_at >= :status_from;

-- name: filter_after
AND (status_at, task_id) < (:after_at, :after_id);

-- name: clear_nodes
DELETE FROM nodes;

-- name: join
INSERT OR REPLACE INTO nodes (id, beat) VALUES (?, ?);

-- name: beat
UPDATE nodes SET beat = ? WHERE id = ?;

-- name: leave
DELETE FROM nodes WHERE id = ?;

-- name: orphans
SELECT tenant, task_id
FROM tasks
WHERE state IN ('TASK_STATE_SUBMITTED', 'TASK_STATE_WORKING') AND node NOT IN (SELECT id FROM nodes)
ORDER BY status_at, task_id
LIMIT ?;

-- name: take
UPDATE outbox
SET lease_until = :until, attempts = attempts + 1
WHERE id IN (
    SELECT o.id
    FROM outbox AS o
    WHERE o.due <= :now AND o.lease_until <= :now
        AND NOT EXISTS (
            SELECT 1
            FROM outbox AS earlier
            WHERE earlier.tenant = o.tenant AND earlier.task_id = o.task_id AND earlier.target = o.target
                AND (earlier.seq, earlier.id) < (o.seq, o.id) AND earlier.due IS NOT NULL
        )
    ORDER BY o.due, o.id
    LIMIT :limit
)
RETURNING id, tenant, task_id, seq, target, due, attempts - 1;

-- name: settle_done
DELETE FROM outbox WHERE id = ?;

-- name: settle_retry
UPDATE outbox SET due = ?, lease_until = 0 WHERE id = ?;

-- name: settle_dead
UPDATE outbox SET due = NULL, lease_until = 0 WHERE id = ?;

-- name: fire
INSERT OR IGNORE INTO fires (schedule, planned_at) VALUES (?, ?);

-- name: get_doc
SELECT id, rev, body FROM docs WHERE tenant = ? AND kind = ? AND id = ?;

-- name: list_docs
SELECT id, rev, body FROM docs WHERE tenant = ? AND kind = ? ORDER BY id;

-- name: put_doc
INSERT OR REPLACE INTO docs (tenant, kind, id, rev, body) VALUES (?, ?, ?, ?, ?);

-- name: delete_doc
DELETE FROM docs WHERE tenant = ? AND kind = ? AND id = ?;

-- name: next_tasks
SELECT num, tenant, task_id
FROM tasks
WHERE num > :after AND tenant = coalesce(:tenant, tenant)
ORDER BY num
LIMIT :limit;

-- name: ended_tasks
SELECT num
FROM tasks
WHERE num > ? AND status_at < ? AND state IN ('TASK_STATE_COMPLETED', 'TASK_STATE_FAILED', 'TASK_STATE_CANCELED', 'TASK_STATE_REJECTED')
ORDER BY num
LIMIT ?;

-- name: drop_tasks
DELETE FROM tasks
WHERE num IN (SELECT value FROM json_each(?))
    AND status_at < ? AND state IN ('TASK_STATE_COMPLETED', 'TASK_STATE_FAILED', 'TASK_STATE_CANCELED', 'TASK_STATE_REJECTED')
RETURNING num, tenant, task_id;

-- name: drop_events
DELETE FROM events WHERE task IN (SELECT value FROM json_each(?));

-- name: drop_deliveries*
WITH wanted (tenant, task_id) AS (VALUES (?, ?))
DELETE FROM outbox
WHERE id IN (
    SELECT o.id
    FROM wanted CROSS JOIN outbox AS o ON o.tenant = wanted.tenant AND o.task_id = wanted.task_id
);

-- Walks the keys in pages: where a page ends, and how many of its keys nothing needs any more.
-- name: stale_keys
WITH page AS (
    SELECT tenant, key, task_id, expires_at
    FROM dedup
    WHERE (tenant, key) > (:tenant, :key)
    ORDER BY tenant, key
    LIMIT :limit
)
SELECT tenant, key, (
    SELECT count(*)
    FROM page
    WHERE expires_at <= :now OR NOT EXISTS (SELECT 1 FROM tasks AS t WHERE t.task_id = page.task_id)
)
FROM page
ORDER BY tenant DESC, key DESC
LIMIT 1;

-- name: drop_keys
DELETE FROM dedup
WHERE (tenant, key) > (:tenant, :key) AND (tenant, key) <= (:last_tenant, :last_key)
    AND (expires_at <= :now OR NOT EXISTS (SELECT 1 FROM tasks AS t WHERE t.task_id = dedup.task_id));
