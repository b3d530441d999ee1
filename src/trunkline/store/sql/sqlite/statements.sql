-- Named statements. One marked with * takes any number of rows: its (?, …) is repeated per row.
-- Statements that find a task by its id alone are the writer's, which compares the tenant itself.

-- name: find_tasks
WITH wanted (task_id) AS (VALUES (?))
SELECT t.task_id, t.num, t.tenant, (SELECT max(seq) FROM events WHERE task = t.num)
FROM wanted CROSS JOIN tasks AS t ON t.task_id = wanted.task_id;

-- name: find_keys
WITH wanted (tenant, key) AS (VALUES (?, ?))
SELECT d.tenant, d.key, coalesce(t.task_id, ''), d.seq, d.digest, d.expires_at
FROM wanted
    CROSS JOIN dedup AS d ON d.tenant = wanted.tenant AND d.key = wanted.key
    LEFT JOIN tasks AS t ON t.num = d.task;

-- name: find_key
SELECT coalesce(t.task_id, ''), d.seq, d.digest
FROM dedup AS d LEFT JOIN tasks AS t ON t.num = d.task
WHERE d.tenant = :tenant AND d.key = :key AND d.expires_at > :now;

-- name: add_events
INSERT INTO events (id, task, seq, at, body) VALUES (?, ?, ?, ?, ?);

-- name: add_tasks
INSERT INTO tasks (
    num, tenant, task_id, context_id, owner, agent, parent, state, status_at, seq, node, child, wake_at
)
VALUES (?, ?, ?, NULLIF(?, -1), ?, ?, ?, ?, ?, ?, ?, ?, NULLIF(?, -1));

-- name: put_tasks
INSERT INTO tasks (
    num, tenant, task_id, context_id, owner, agent, parent, state, status_at, seq, node, child, wake_at
)
VALUES (?, ?, ?, NULLIF(?, -1), ?, ?, ?, ?, ?, ?, ?, ?, NULLIF(?, -1))
ON CONFLICT (num) DO UPDATE SET
    context_id = excluded.context_id, owner = excluded.owner, agent = excluded.agent,
    parent = excluded.parent, state = excluded.state, status_at = excluded.status_at, seq = excluded.seq,
    node = excluded.node, child = excluded.child, wake_at = excluded.wake_at;

-- Of a task that is surely there. Two thirds of the price of UPDATE … FROM (VALUES …), and half of
-- that of one UPDATE per row. What it does not set keeps its place in the indexes.
-- name: put_heads
INSERT INTO tasks (num, state, status_at, seq, node, child, wake_at, tenant, task_id)
VALUES (?, ?, ?, ?, ?, ?, NULLIF(?, -1), '', '')
ON CONFLICT (num) DO UPDATE SET
    state = excluded.state, status_at = excluded.status_at, seq = excluded.seq, node = excluded.node,
    child = excluded.child, wake_at = excluded.wake_at;

-- name: add_keys
INSERT INTO dedup (tenant, key, task, seq, digest, expires_at) VALUES (?, ?, ?, ?, ?, ?);

-- name: put_keys
INSERT OR REPLACE INTO dedup (tenant, key, task, seq, digest, expires_at) VALUES (?, ?, ?, ?, ?, ?);

-- name: add_deliveries
INSERT INTO outbox (tenant, task_id, target, seq, id, due, lane) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: ends
SELECT
    max(
        (SELECT coalesce(max(num), 0) FROM tasks),
        (SELECT coalesce(max(value), 0) FROM marks WHERE name = 'tasks')
    ),
    max(
        (SELECT coalesce(max(id), 0) FROM events),
        (SELECT coalesce(max(value), 0) FROM marks WHERE name = 'events')
    );

-- name: mark_ends
INSERT OR REPLACE INTO marks (name, value) VALUES ('tasks', :tasks), ('events', :events);

-- A page comes as one row of JSON: every row fetched costs a hand-over of the interpreter lock.
-- name: read
SELECT '[' || group_concat('{"last":' || seq || ',"at":' || at || ',"events":' || body || '}') || ']'
FROM (
    SELECT e.seq, e.at, e.body
    FROM tasks AS t CROSS JOIN events AS e ON e.task = t.num
    WHERE t.task_id = :task_id AND t.tenant = :tenant AND e.seq > :after
        AND e.seq <= coalesce(
            (SELECT min(seq) FROM events WHERE task = t.num AND seq >= :after + :limit), :after + :limit
        )
    ORDER BY e.seq
);

-- name: tail
SELECT '[' || group_concat(
    '{"tenant":' || json_quote(tenant) || ',"task_id":' || json_quote(task_id)
    || ',"id":' || id || ',"last":' || seq || ',"at":' || at || ',"events":' || body || '}'
) || ']'
FROM (
    SELECT e.id, t.tenant, t.task_id, e.seq, e.at, e.body
    FROM events AS e CROSS JOIN tasks AS t ON t.num = e.task
    WHERE e.id > :after AND e.id < (SELECT min(id) FROM events WHERE id > :after) + :limit
    ORDER BY e.id
);

-- A body as bytes, because one that is damaged may be no text.
-- name: tail_rows
SELECT e.id, t.tenant, t.task_id, e.seq, e.at, CAST(e.body AS BLOB)
FROM events AS e CROSS JOIN tasks AS t ON t.num = e.task
WHERE e.id > :after AND e.id < (SELECT min(id) FROM events WHERE id > :after) + :limit
ORDER BY e.id;

-- name: head
SELECT
    task_id, coalesce(context_id, task_id), owner, state, status_at, seq, node, agent, parent, child, wake_at
FROM tasks
WHERE task_id = :task_id AND tenant = :tenant AND state IS NOT NULL;

-- The marks are filled with the filters below that a caller asked for. An owner is there when a
-- head is, and its index knows it.
-- name: heads
SELECT json_group_array(json_array(
    task_id, coalesce(context_id, task_id), owner, state, status_at, seq, node, agent, parent, child, wake_at
))
FROM (
    SELECT task_id, context_id, owner, state, status_at, seq, node, agent, parent, child, wake_at
    FROM tasks /*by*/
    WHERE tenant = :tenant AND owner IS NOT NULL /*filters*/ /*after*/
    ORDER BY status_at DESC, task_id DESC
    LIMIT :limit
);

-- The same over all principals, by a leap from one to the next: the index has the newest tasks of each at its end.
-- Where there are very many it costs less to pass over all tasks.
-- name: heads_of_all
WITH RECURSIVE owners (name) AS (
    SELECT min(owner) FROM tasks WHERE tenant = :tenant
    UNION ALL
    SELECT (SELECT min(owner) FROM tasks WHERE tenant = :tenant AND owner > owners.name)
    FROM owners
    WHERE owners.name IS NOT NULL
    LIMIT 101
)
SELECT CASE WHEN (SELECT count(name) FROM owners) <= 100 THEN (
    SELECT json_group_array(json_array(
        task_id, coalesce(context_id, task_id), owner, state, status_at, seq, node, agent, parent, child, wake_at
    ))
    FROM (
        SELECT t.*
        FROM owners CROSS JOIN tasks AS t ON t.num IN (
            SELECT num
            FROM tasks INDEXED BY tasks_by_owner
            WHERE tenant = :tenant AND owner = owners.name /*filters*/ /*after*/
            ORDER BY status_at DESC, task_id DESC
            LIMIT :limit
        )
        ORDER BY t.status_at DESC, t.task_id DESC
        LIMIT :limit
    )
) ELSE (
    SELECT json_group_array(json_array(
        task_id, coalesce(context_id, task_id), owner, state, status_at, seq, node, agent, parent, child, wake_at
    ))
    FROM (
        SELECT *
        FROM tasks
        WHERE tenant = :tenant AND owner IS NOT NULL /*filters*/ /*after*/
        ORDER BY status_at DESC, task_id DESC
        LIMIT :limit
    )
) END;

-- name: count_heads
SELECT count(*) FROM tasks /*by*/ WHERE tenant = :tenant AND owner IS NOT NULL /*filters*/;

-- name: filter_principal
AND owner = :principal;

-- name: filter_agents
AND agent IN (SELECT value FROM json_each(:agents));

-- name: filter_parent
AND num IN (SELECT num FROM tasks WHERE parent = :parent AND parent <> '');

-- name: filter_context_id
AND num IN (
    SELECT num FROM tasks WHERE tenant = :tenant AND context_id = :context_id
    UNION ALL
    SELECT num FROM tasks WHERE task_id = :context_id AND context_id IS NULL
);

-- A context or a parent has few tasks and a principal may be everybody: this leaves only the nums to go by.
-- name: by_num
NOT INDEXED;

-- What is open is little beside what has ended, whosever it is.
-- name: by_open
INDEXED BY tasks_open;

-- name: filter_state
AND state = :state;

-- name: filter_open_state
AND state = :open_state AND state <= 4;

-- name: filter_open_states
AND state IN (SELECT value FROM json_each(:open_states)) AND state <= 4;

-- name: filter_status_from
AND status_at >= :status_from;

-- name: by_born
INDEXED BY tasks_by_id;

-- name: filter_born_from
AND task_id >= :born_from AND parent = '';

-- name: filter_after
AND (status_at, task_id) < (:after_at, :after_id);

-- name: clear_nodes
DELETE FROM nodes;

-- What was being delivered by a process that died.
-- name: clear_leases
UPDATE outbox SET lease_until = 0 WHERE lease_until > 0 AND due IS NOT NULL;

-- name: join
INSERT OR REPLACE INTO nodes (id, beat, agents) VALUES (:node, :beat, :agents);

-- name: beat
UPDATE nodes SET beat = :beat WHERE id = :node;

-- name: leave
DELETE FROM nodes WHERE id = :node;

-- name: nodes
SELECT id, agents, beat FROM nodes ORDER BY id;

-- name: alive
SELECT id FROM nodes WHERE id = :node;

-- Tasks that no living node has claimed: those that run, and of any state that is not ended those whose time
-- has come, as they were parked or ask a question with a deadline.
-- name: orphans
SELECT tenant, task_id, context_id, owner, state, status_at, seq, node, agent, parent, child, wake_at
FROM (
    SELECT *
    FROM tasks INDEXED BY tasks_open
    WHERE state <= 4 AND state IN (1, 2) AND agent IN (SELECT value FROM json_each(:agents))
        AND wake_at IS NULL AND node NOT IN (SELECT id FROM nodes)
    UNION ALL
    SELECT *
    FROM tasks INDEXED BY tasks_open
    WHERE state <= 4 AND state IN (1, 2, 3, 4) AND agent IN (SELECT value FROM json_each(:agents))
        AND wake_at <= :now AND node NOT IN (SELECT id FROM nodes)
)
ORDER BY status_at, task_id
LIMIT :limit;

-- name: claimed
SELECT tenant, task_id, node, agent, seq
FROM tasks INDEXED BY tasks_open
WHERE state <= 4 AND state IN (1, 2) AND agent IN (SELECT value FROM json_each(:agents))
    AND wake_at IS NULL AND node = :node AND task_id > :after
ORDER BY task_id
LIMIT :limit;

-- Open tasks of agents that no node carries, by a leap from one agent to the next.
-- name: waiting
WITH RECURSIVE agents (agent) AS (
    SELECT (SELECT agent FROM tasks WHERE state <= 4 ORDER BY agent LIMIT 1)
    UNION ALL
    SELECT (SELECT t.agent FROM tasks AS t WHERE t.state <= 4 AND t.agent > agents.agent ORDER BY t.agent LIMIT 1)
    FROM agents
    WHERE agents.agent IS NOT NULL
)
SELECT t.tenant, t.task_id, t.agent, t.state
FROM agents CROSS JOIN tasks AS t INDEXED BY tasks_open ON t.agent = agents.agent AND t.state <= 4
WHERE agents.agent NOT IN (SELECT each.value FROM nodes CROSS JOIN json_each(nodes.agents) AS each)
    AND t.task_id > :after AND t.tenant = coalesce(:tenant, t.tenant)
ORDER BY t.task_id
LIMIT :limit;

-- Open tasks with a moment, by when that was recorded: the event of the head tells it.
-- name: parked
SELECT t.tenant, t.task_id, t.wake_at, e.at
FROM tasks AS t INDEXED BY tasks_open CROSS JOIN events AS e
    ON e.task = t.num AND e.seq = (SELECT min(seq) FROM events WHERE task = t.num AND seq >= t.seq)
WHERE t.state <= 4 AND t.wake_at > 0 AND t.wake_at < :never AND t.task_id > :after AND e.at > :since
ORDER BY t.task_id
LIMIT :limit;

-- Those that were spoken to since wake by themselves.
-- name: rested_children
SELECT c.tenant, c.task_id
FROM tasks AS p INDEXED BY tasks_awaiting CROSS JOIN tasks AS c
    ON c.task_id = p.child AND c.tenant = p.tenant AND c.state >= 3
WHERE p.child <> '' AND p.wake_at > 0
ORDER BY p.task_id
LIMIT :limit;

-- name: open_children_of_ended
SELECT c.tenant, c.task_id
FROM tasks AS c INDEXED BY tasks_open_children CROSS JOIN tasks AS p
    ON p.task_id = c.parent AND p.tenant = c.tenant AND p.state >= 5
WHERE c.parent <> '' AND c.state <= 4
ORDER BY c.task_id
LIMIT :limit;

-- The lanes that have something to take, by a leap from one to the next, however much is in them.
-- name: due_lanes
WITH RECURSIVE lanes (lane) AS (
    SELECT (SELECT lane FROM outbox WHERE due IS NOT NULL ORDER BY lane LIMIT 1)
    UNION ALL
    SELECT (
        SELECT o.lane FROM outbox AS o WHERE o.due IS NOT NULL AND o.lane > lanes.lane ORDER BY o.lane LIMIT 1
    )
    FROM lanes
    WHERE lanes.lane IS NOT NULL
)
SELECT lane, oldest
FROM (
    SELECT lanes.lane, (
        SELECT max(o.due, o.lease_until)
        FROM outbox AS o
        WHERE o.due IS NOT NULL AND o.lane = lanes.lane
        ORDER BY max(o.due, o.lease_until)
        LIMIT 1
    ) AS oldest
    FROM lanes
    WHERE lanes.lane IS NOT NULL
)
WHERE oldest <= :now;

-- Looks for an earlier one from the nearest on: one that waits has it right before itself.
-- name: due_deliveries
SELECT max(o.due, o.lease_until), o.lane, o.id
FROM json_each(:lanes) AS lanes CROSS JOIN outbox AS o ON o.id IN (
    SELECT few.id
    FROM outbox AS few INDEXED BY outbox_by_lane
    WHERE few.due IS NOT NULL AND few.lane = lanes.value AND max(few.due, few.lease_until) <= :now
        AND (
            SELECT 1
            FROM outbox AS earlier
            WHERE earlier.tenant = few.tenant AND earlier.task_id = few.task_id
                AND earlier.target = few.target AND (earlier.seq, earlier.id) < (few.seq, few.id)
                AND +earlier.due IS NOT NULL
            ORDER BY earlier.seq DESC, earlier.id DESC
            LIMIT 1
        ) IS NULL
    ORDER BY max(few.due, few.lease_until)
    LIMIT :per_lane
);

-- name: lease
UPDATE outbox
SET lease_until = :now + :lease, attempts = attempts + 1
WHERE id IN (SELECT value FROM json_each(:ids) LIMIT :limit)
RETURNING id, tenant, task_id, seq, target, lane, due, attempts - 1;

-- name: settle
UPDATE outbox
SET due = CASE WHEN s.outcome = 'retry' THEN s.next_due END, lease_until = 0,
    state = CASE WHEN s.outcome = 'retry' THEN 'pending' ELSE s.outcome END,
    status = s.status, note = s.note, at = :now, attempts = attempts - s.untried
FROM (
    SELECT
        json_extract(value, '$.id') AS id, json_extract(value, '$.outcome') AS outcome,
        json_extract(value, '$.next_due') AS next_due, json_extract(value, '$.status') AS status,
        json_extract(value, '$.note') AS note, json_extract(value, '$.untried') AS untried
    FROM json_each(:settled)
) AS s
WHERE outbox.id = s.id AND outbox.due IS NOT NULL;

-- What follows a retry comes no earlier. Else all of it would be looked at again at every take.
-- name: hold_back
WITH held (id, due) AS MATERIALIZED (
    SELECT later.id, one.due
    FROM json_each(:ids) AS s
        CROSS JOIN outbox AS one ON one.id = s.value
        CROSS JOIN outbox AS later
            ON later.tenant = one.tenant AND later.task_id = one.task_id AND later.target = one.target
            AND (later.seq, later.id) > (one.seq, one.id) AND later.due < one.due
)
UPDATE outbox SET due = (SELECT held.due FROM held WHERE held.id = outbox.id)
WHERE id IN (SELECT held.id FROM held);

-- A lane, or a host: the lanes of one are itself with a space and whose they are.
-- name: expire
UPDATE outbox
SET due = NULL, lease_until = 0, state = 'dead', note = :note
WHERE id IN (
    SELECT id
    FROM outbox INDEXED BY outbox_by_lane
    WHERE due IS NOT NULL AND lane >= :lane AND lane < :lane || '!'
        AND max(due, lease_until) < :before AND lease_until <= :now
    LIMIT :limit
)
RETURNING 1;

-- After the clock was set back: each waits for as long as it was to wait after its last attempt, at most.
-- name: rebase_deliveries
UPDATE outbox
SET due = CASE WHEN at = 0 THEN min(due, :now) WHEN at > :now THEN :now + max(0, due - at) ELSE due END,
    at = min(at, :now), lease_until = min(lease_until, :now + :lease)
WHERE due IS NOT NULL AND max(due, lease_until) > :now
    AND (at = 0 OR at > :now OR lease_until > :now + :lease)
RETURNING 1;

-- name: replay
UPDATE outbox
SET due = :now, attempts = 0, state = 'pending'
WHERE id = :id AND due IS NULL
RETURNING 1;

-- A plus keeps an index out of it: everybody may be of one tenant, and a task has few deliveries.
-- name: deliveries
SELECT id, tenant, task_id, seq, target, lane, state, due, attempts, status, note, at
FROM outbox /*by*/
WHERE true /*filters*/
ORDER BY id DESC
LIMIT :limit;

-- name: by_lane
INDEXED BY outbox_by_lane;

-- name: filter_delivery_tenant
AND +tenant = :tenant;

-- A task id exists once, so it leads to its tenant and to the rows by their key.
-- name: filter_delivery_task
AND task_id = :task_id AND tenant = (SELECT t.tenant FROM tasks AS t WHERE t.task_id = :task_id);

-- name: filter_delivery_state
AND +state = :state;

-- name: filter_pending
AND due IS NOT NULL;

-- name: filter_given_up
AND state = :state AND state IN ('dead', 'dropped');

-- name: filter_delivery_after
AND id < :after;

-- name: fire
INSERT OR IGNORE INTO fires (schedule, planned_at) VALUES (:schedule, :planned_at) RETURNING 1;

-- name: get_doc
SELECT id, rev, body FROM docs WHERE tenant = :tenant AND kind = :kind AND id = :id AND gone_at IS NULL;

-- name: list_docs
SELECT id, rev, body
FROM docs
WHERE tenant = :tenant AND kind = :kind AND id > :after AND gone_at IS NULL
ORDER BY id
LIMIT :limit;

-- name: docs_size
SELECT coalesce(sum(length(body)), 0)
FROM docs
WHERE tenant = :tenant AND kind = :kind AND gone_at IS NULL;

-- name: docs_of
SELECT kind, id
FROM docs
WHERE tenant = :tenant AND gone_at IS NULL
LIMIT :limit;

-- name: hold_doc
SELECT 1
FROM docs
WHERE tenant = :tenant AND kind = :kind AND id = :id AND body = :body AND gone_at IS NULL;

-- name: doc_kinds
SELECT DISTINCT kind FROM docs WHERE gone_at IS NULL ORDER BY kind;

-- name: every_doc
SELECT tenant, id, rev, body
FROM docs
WHERE kind = :kind AND (tenant, id) > (:after, :after_id) AND gone_at IS NULL
ORDER BY tenant, id
LIMIT :limit;

-- name: doc_changes
SELECT tenant, id, rev, body, gone_at IS NOT NULL, changed
FROM docs
WHERE kind = :kind AND changed > :after
ORDER BY changed
LIMIT :limit;

-- name: add_doc
INSERT INTO docs AS d (tenant, kind, id, rev, body, changed)
VALUES (:tenant, :kind, :id, 1, :body, (SELECT coalesce(max(changed), 0) + 1 FROM docs WHERE kind = :kind))
ON CONFLICT (tenant, kind, id) DO UPDATE SET
    rev = 1, body = excluded.body, changed = excluded.changed, gone_at = NULL
WHERE d.gone_at IS NOT NULL
RETURNING rev;

-- name: put_doc
UPDATE docs
SET rev = rev + 1, body = :body, changed = (SELECT max(d.changed) + 1 FROM docs AS d WHERE d.kind = :kind)
WHERE tenant = :tenant AND kind = :kind AND id = :id AND rev = :rev AND gone_at IS NULL
RETURNING rev;

-- name: delete_doc
UPDATE docs
SET gone_at = :now, body = x'', changed = (SELECT max(d.changed) + 1 FROM docs AS d WHERE d.kind = :kind)
WHERE tenant = :tenant AND kind = :kind AND id = :id AND gone_at IS NULL
    AND (:body IS NULL OR body = :body)
RETURNING 1;

-- The newest of a kind stays: the next number is counted from it, and a mirror may have seen it.
-- name: drop_gone_docs
DELETE FROM docs
WHERE gone_at < :before AND changed < (SELECT max(d.changed) FROM docs AS d WHERE d.kind = docs.kind);

-- name: next_tasks
SELECT task_id, tenant
FROM tasks
WHERE task_id > :after AND tenant = coalesce(:tenant, tenant)
ORDER BY task_id
LIMIT :limit;

-- name: hold_heads
SELECT task_id FROM tasks WHERE task_id IN (SELECT value FROM json_each(:task_ids));

-- name: put_head
UPDATE tasks
SET context_id = nullif(:context_id, task_id), owner = :principal, agent = :agent, parent = :parent,
    state = :state, status_at = :status_at, seq = :seq, node = :node, child = :child, wake_at = :wake_at
WHERE task_id = :task_id;

-- The task keeps its row, by which its log is found.
-- name: drop_head
UPDATE tasks
SET context_id = NULL, owner = NULL, agent = '', parent = '', state = NULL, status_at = NULL, seq = NULL,
    node = NULL, child = '', wake_at = NULL
WHERE task_id = :task_id;

-- By way of the principals, whose index is sorted by status_at: it costs a leap per principal and a step per
-- task that is old, however many are young. What waits to be posted keeps its task, unless it has been
-- due for five days longer: that is more than any retry takes, so nobody posts here any more.
-- name: ended_tasks
WITH RECURSIVE owners (tenant, owner) AS (
    SELECT tenant, owner
    FROM (SELECT tenant, owner FROM tasks WHERE owner IS NOT NULL ORDER BY tenant, owner LIMIT 1)
    UNION ALL
    SELECT t.tenant, t.owner
    FROM owners AS o CROSS JOIN tasks AS t ON t.num = coalesce(
        (SELECT num FROM tasks WHERE tenant = o.tenant AND owner > o.owner ORDER BY owner LIMIT 1),
        (SELECT num FROM tasks WHERE tenant > o.tenant AND owner IS NOT NULL ORDER BY tenant, owner LIMIT 1)
    )
)
SELECT t.num, t.seq
FROM owners AS o CROSS JOIN tasks AS t INDEXED BY tasks_by_owner
    ON t.tenant = o.tenant AND t.owner = o.owner AND t.status_at < :before AND t.state >= 5
    AND (:agents IS NULL OR t.agent IN (SELECT value FROM json_each(:agents)))
    AND (:tenant IS NULL OR t.tenant = :tenant)
WHERE NOT EXISTS (
    SELECT 1 FROM outbox AS d
    WHERE d.tenant = t.tenant AND d.task_id = t.task_id AND +d.due >= :before - 432000000
)
LIMIT :limit;

-- name: task_nums
SELECT num, seq FROM tasks
WHERE tenant = :tenant AND task_id IN (SELECT value FROM json_each(:task_ids));

-- name: drop_tasks
DELETE FROM tasks
WHERE num IN (SELECT value FROM json_each(:nums))
    AND status_at < :before AND state >= 5
    AND NOT EXISTS (
        SELECT 1 FROM outbox AS d
        WHERE d.tenant = tasks.tenant AND d.task_id = tasks.task_id AND +d.due >= :before - 432000000
    )
RETURNING num, tenant, task_id;

-- Up to which number events of each tenant are forgotten: who comes back to an earlier place has missed some.
-- name: mark_pruned
INSERT INTO marks (name, value)
SELECT 'pruned ' || json_extract(gone.value, '$[1]'), max(e.id)
FROM json_each(:tasks) AS gone CROSS JOIN events AS e ON e.task = json_extract(gone.value, '$[0]')
GROUP BY 1
ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value);

-- name: pruned
SELECT value FROM marks WHERE name = 'pruned ' || :tenant;

-- name: drop_events
DELETE FROM events WHERE task IN (SELECT value FROM json_each(:nums));

-- name: drop_deliveries
DELETE FROM outbox
WHERE id IN (
    SELECT o.id
    FROM json_each(:tasks) AS gone CROSS JOIN outbox AS o
        ON o.tenant = json_extract(gone.value, '$[1]') AND o.task_id = json_extract(gone.value, '$[2]')
);

-- Walks the keys in pages: where a page ends, and how many of its keys have expired.
-- name: stale_keys
WITH page AS (
    SELECT tenant, key, expires_at
    FROM dedup
    WHERE (tenant, key) > (:tenant, :key)
    ORDER BY tenant, key
    LIMIT :limit
)
SELECT tenant, key, (SELECT count(*) FROM page WHERE expires_at <= :now)
FROM page
ORDER BY tenant DESC, key DESC
LIMIT 1;

-- name: drop_keys
DELETE FROM dedup
WHERE (tenant, key) > (:tenant, :key) AND (tenant, key) <= (:last_tenant, :last_key)
    AND expires_at <= :now;

-- name: drop_keys_of
DELETE FROM dedup
WHERE tenant = :tenant AND key IN (SELECT key FROM dedup WHERE tenant = :tenant LIMIT :limit)
RETURNING 1;

-- name: drop_fires
DELETE FROM fires WHERE planned_at < :before;

-- name: mark
SELECT value FROM marks WHERE name = :name;

-- name: put_mark
INSERT OR REPLACE INTO marks (name, value) VALUES (?, ?);

-- Where the next page of the log ends: before the first append that is not old enough.
-- name: page_end
WITH page AS (SELECT id, at FROM events WHERE id > :after ORDER BY id LIMIT :limit)
SELECT max(id)
FROM page
WHERE id < coalesce((SELECT min(id) FROM page WHERE at >= :before), (SELECT max(id) + 1 FROM page));

-- Tasks that ended within these rows and are long enough to be worth a visit, but not too large.
-- name: long_tasks
SELECT DISTINCT t.task_id
FROM events AS e CROSS JOIN tasks AS t ON t.num = e.task
WHERE e.id > :after AND e.id <= :last AND t.state >= 5 AND e.seq >= t.seq
    AND (
        t.seq > :events
        OR (SELECT count(*) FROM (SELECT 1 FROM events WHERE task = t.num LIMIT :rows + 1)) > :rows
    )
    AND (SELECT sum(length(body)) FROM events WHERE task = t.num) <= :bytes;

-- name: read_rows
SELECT e.seq, e.at, e.body
FROM tasks AS t CROSS JOIN events AS e ON e.task = t.num
WHERE t.task_id = :task_id
ORDER BY e.seq;

-- name: hold_head
SELECT 1 FROM tasks WHERE task_id = :task_id AND state >= 5;

-- name: lasts
SELECT seq FROM events WHERE task = (SELECT num FROM tasks WHERE task_id = :task_id) ORDER BY seq;

-- name: drop_rows
DELETE FROM events
WHERE task = (SELECT num FROM tasks WHERE task_id = :task_id) AND seq IN (SELECT value FROM json_each(:lasts));

-- name: put_row
UPDATE events SET body = :body
WHERE task = (SELECT num FROM tasks WHERE task_id = :task_id) AND seq = :last;

-- name: pages
SELECT page_count, freelist_count FROM pragma_page_count, pragma_freelist_count;

-- name: give_back
PRAGMA incremental_vacuum(1);

-- name: every_task
SELECT tenant, task_id FROM tasks WHERE task_id > :after ORDER BY task_id LIMIT :limit;

-- A page of tasks by id, the newest first: those of a tenant whose first append holds a text, and where it ends.
-- name: beginnings
WITH page AS MATERIALIZED (
    SELECT num, tenant, task_id FROM tasks WHERE task_id < :before ORDER BY task_id DESC LIMIT :limit
)
SELECT
    (
        SELECT json_group_array(task_id)
        FROM page
        WHERE tenant = :tenant
            AND instr((SELECT e.body FROM events AS e WHERE e.task = page.num ORDER BY e.seq LIMIT 1), :words) > 0
    ),
    count(*), min(task_id)
FROM page;

-- What no task's own log can tell. Keys outlive their tasks, so they are no fault.
-- name: faults
SELECT task_id, 'has neither events nor a head' FROM tasks AS t
WHERE state IS NULL AND NOT EXISTS (SELECT 1 FROM events WHERE task = t.num)
UNION ALL
SELECT '', 'events of a task that is not there (number ' || task || ')' FROM events AS e
WHERE NOT EXISTS (SELECT 1 FROM tasks WHERE num = e.task)
GROUP BY task
UNION ALL
SELECT task_id, 'a delivery of a task that is not there: ' || id FROM outbox AS o
WHERE NOT EXISTS (SELECT 1 FROM tasks WHERE task_id = o.task_id AND tenant = o.tenant)
LIMIT 1000;

-- name: quick_check
PRAGMA quick_check;
