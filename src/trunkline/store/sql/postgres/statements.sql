-- Named statements; a parameter is :name, an array of one value per row :names.

-- One round trip and one transaction for a whole group. The rows come sorted by task, so that two
-- groups wait for each other in one order only. What stands in the marks is left out where a group
-- has nothing for it. `done` has the appends that found the log where they expected it.
-- name: append
WITH done AS (
    INSERT INTO events (task_id, first, last, tenant, at, body, mark)
    SELECT w.task_id, w.expected + 1, w.last, w.tenant, w.at, w.body, w.mark
    FROM unnest(
            :task_ids::text[], :tenants::text[], :expected::bigint[], :lasts::bigint[], :ats::bigint[],
            :bodies::bytea[], :marks::bigint[]
        ) WITH ORDINALITY AS w (task_id, tenant, expected, last, at, body, mark, n)
        LEFT JOIN LATERAL (
            SELECT e.tenant, e.last
            FROM events AS e
            WHERE e.task_id = w.task_id
            ORDER BY e.first DESC
            LIMIT 1
        ) AS newest ON true
    WHERE w.expected = coalesce(newest.last, 0) AND w.tenant = coalesce(newest.tenant, w.tenant) /*unless*/
    ORDER BY w.n
    ON CONFLICT (task_id, first) DO NOTHING
    RETURNING task_id
) /*parts*/
SELECT CASE WHEN count(*) < :count::bigint THEN array_agg(task_id) ELSE '{}' END FROM done;

-- Appends that follow one of the same group on the same task.
-- name: append_rest
, rest AS (
    INSERT INTO events (task_id, first, last, tenant, at, body, mark)
    SELECT r.task_id, r.expected + 1, r.last, r.tenant, r.at, r.body, r.mark
    FROM unnest(
        :rest_task_ids::text[], :rest_tenants::text[], :rest_expected::bigint[], :rest_lasts::bigint[],
        :rest_ats::bigint[], :rest_bodies::bytea[], :rest_marks::bigint[]
    ) AS r (task_id, tenant, expected, last, at, body, mark)
    WHERE (SELECT count(*) FROM done) = :count::bigint OR r.task_id IN (SELECT task_id FROM done)
);

-- name: append_heads
, heads AS (
    INSERT INTO tasks (
        task_id, tenant, context_id, owner, state, status_at, seq, node, agent, parent, child, wake_at
    )
    SELECT h.*
    FROM unnest(
        :head_task_ids::text[], :head_tenants::text[], :head_context_ids::text[], :head_principals::text[],
        :head_states::smallint[], :head_status_ats::bigint[], :head_seqs::bigint[], :head_nodes::text[],
        :head_agents::text[], :head_parents::text[], :head_childs::text[], :head_wake_ats::bigint[]
    ) AS h (task_id, tenant, context_id, owner, state, status_at, seq, node, agent, parent, child, wake_at)
    WHERE (SELECT count(*) FROM done) = :count::bigint OR h.task_id IN (SELECT task_id FROM done)
    ON CONFLICT (task_id) DO UPDATE SET
        context_id = excluded.context_id, owner = excluded.owner, state = excluded.state,
        status_at = excluded.status_at, seq = excluded.seq, node = excluded.node, agent = excluded.agent,
        parent = excluded.parent, child = excluded.child, wake_at = excluded.wake_at
);

-- A key recorded by somebody else at this moment fails the whole statement, and so it must.
-- name: append_keys
, keys AS (
    INSERT INTO dedup (tenant, key, task_id, seq, digest, expires_at)
    SELECT k.tenant, k.key, k.task_id, k.seq, k.digest, k.kept_ms + coalesce(:now::bigint, now_ms())
    FROM unnest(
        :key_tenants::text[], :key_names::text[], :key_task_ids::text[], :key_seqs::bigint[],
        :key_digests::bytea[], :key_times::bigint[]
    ) AS k (tenant, key, task_id, seq, digest, kept_ms)
    WHERE (SELECT count(*) FROM done) = :count::bigint OR k.task_id IN (SELECT task_id FROM done)
    ORDER BY k.tenant COLLATE "C", k.key COLLATE "C"
);

-- name: unless_recorded
AND w.task_id <> ALL (coalesce(
    (
        SELECT array_agg(k.task_id)
        FROM unnest(:key_tenants::text[], :key_names::text[], :key_task_ids::text[], :key_overs::bytea[])
                AS k (tenant, key, task_id, over)
            JOIN dedup AS d ON d.tenant = k.tenant AND d.key = k.key
        WHERE d.expires_at > coalesce(:now::bigint, now_ms()) AND d.digest IS DISTINCT FROM k.over
    ),
    '{}'
));

-- When something is due is said by the clock of whoever says it (`here`), and kept by ours.
-- name: append_deliveries
, deliveries AS (
    INSERT INTO outbox (task_id, tenant, target, seq, id, due, lane)
    SELECT
        o.task_id, o.tenant, o.target, o.seq, o.id,
        o.due + coalesce(:now::bigint, now_ms()) - :here::bigint, o.lane
    FROM unnest(
        :out_task_ids::text[], :out_tenants::text[], :out_targets::text[], :out_seqs::bigint[],
        :out_ids::text[], :out_dues::bigint[], :out_lanes::text[]
    ) AS o (task_id, tenant, target, seq, id, due, lane)
    WHERE (SELECT count(*) FROM done) = :count::bigint OR o.task_id IN (SELECT task_id FROM done)
);

-- Why appends were refused: where their logs stand, whether they are there already, who has their key.
-- name: judge
SELECT newest.last, newest.tenant, ours.last, d.task_id, d.seq, d.digest
FROM unnest(:task_ids::text[], :tenants::text[], :expected::bigint[], :marks::bigint[], :keys::text[])
    WITH ORDINALITY AS w (task_id, tenant, expected, mark, key, n)
    LEFT JOIN LATERAL (
        SELECT e.tenant, e.last FROM events AS e WHERE e.task_id = w.task_id ORDER BY e.first DESC LIMIT 1
    ) AS newest ON true
    LEFT JOIN LATERAL (
        SELECT e.last
        FROM events AS e
        WHERE e.task_id = w.task_id AND e.first = w.expected + 1 AND e.mark = w.mark AND e.tenant = w.tenant
    ) AS ours ON true
    LEFT JOIN LATERAL (
        SELECT k.task_id, k.seq, k.digest
        FROM dedup AS k
        WHERE k.tenant = w.tenant AND k.key = w.key AND k.expires_at > coalesce(:now::bigint, now_ms())
    ) AS d ON true
ORDER BY w.n;

-- name: find_key
SELECT d.task_id, d.seq, d.digest
FROM dedup AS d
WHERE d.tenant = :tenant AND d.key = :key AND d.expires_at > coalesce(:now::bigint, now_ms());

-- name: drop_key
DELETE FROM dedup
WHERE tenant = :tenant AND key = :key
    AND (expires_at <= coalesce(:now::bigint, now_ms()) OR digest = :over::bytea);

-- Begins at the row that holds the seq after `after`, which may be in its middle.
-- name: read
SELECT e.last, e.at, e.body
FROM events AS e
WHERE e.task_id = :task_id AND e.tenant = :tenant
    AND e.first >= coalesce(
        (
            SELECT b.first FROM events AS b
            WHERE b.task_id = :task_id AND b.first <= :after::bigint + 1
            ORDER BY b.first DESC
            LIMIT 1
        ),
        0
    )
    AND e.first <= :after::bigint + :limit::bigint AND e.last > :after::bigint
ORDER BY e.first;

-- Most places have nothing new: for them it is one look at the newest row. A log that ends before its place
-- gives that end and nothing else.
-- name: news
SELECT p.n, newest.last, e.last, e.at, e.body
FROM unnest(:task_ids::text[], :tenants::text[], :seqs::bigint[]) WITH ORDINALITY AS p (task_id, tenant, seq, n)
    CROSS JOIN LATERAL (
        SELECT b.last, b.tenant FROM events AS b WHERE b.task_id = p.task_id ORDER BY b.first DESC LIMIT 1
    ) AS newest
    LEFT JOIN LATERAL (
        SELECT a.first, a.last, a.at, a.body
        FROM events AS a
        WHERE a.task_id = p.task_id AND a.tenant = p.tenant AND a.last > p.seq
            AND a.first >= coalesce(
                (
                    SELECT b.first FROM events AS b
                    WHERE b.task_id = p.task_id AND b.first <= p.seq + 1
                    ORDER BY b.first DESC
                    LIMIT 1
                ),
                0
            )
        ORDER BY a.first
        LIMIT :limit::bigint
    ) AS e ON true
WHERE newest.last <> p.seq AND newest.tenant = p.tenant
ORDER BY p.n, e.first
LIMIT :limit::bigint;

-- Below the horizon nothing is still being written, so nothing can appear behind a cursor.
-- name: tail
SELECT xid, tenant, task_id, last, at, body, before + last - first + 1 >= :limit::bigint
FROM (
    SELECT
        page.*,
        sum(last - first + 1) OVER (ORDER BY number, task_id, first) - (last - first + 1) AS before
    FROM (
        SELECT e.xid AS number, e.xid::text AS xid, e.tenant, e.task_id, e.first, e.last, e.at, e.body
        FROM events AS e
        WHERE e.xid >= :xid::text::xid8 AND e.xid < pg_snapshot_xmin(pg_current_snapshot())
            AND (e.xid > :xid::text::xid8 OR e.task_id > :task_id OR e.task_id = :task_id AND e.last > :seq)
        ORDER BY e.xid, e.task_id, e.first
        LIMIT :limit::bigint
    ) AS page
) AS counted
WHERE before < :limit::bigint
ORDER BY number, task_id, first;

-- A tail gives what was written before this transaction.
-- name: end
SELECT pg_snapshot_xmin(pg_current_snapshot())::text;

-- name: held_back
SELECT EXISTS (SELECT FROM events AS e WHERE e.xid >= pg_snapshot_xmin(pg_current_snapshot()));

-- name: head
SELECT task_id, context_id, owner, state, status_at, seq, node, agent, parent, child, wake_at
FROM tasks
WHERE task_id = :task_id AND tenant = :tenant;

-- The page as JSON, as SQLite has it.
-- name: heads
SELECT coalesce(
    json_agg(json_build_array(
        task_id, context_id, owner, state, status_at, seq, node, agent, parent, child, wake_at
    )),
    '[]'
)
FROM (
    SELECT *
    FROM tasks
    WHERE tenant = :tenant /*filters*/ /*after*/
    ORDER BY status_at DESC, task_id DESC
    LIMIT :limit::bigint
) AS page;

-- The same of agents alone, however few tasks they have among those of the others: what has ended and what is open
-- have an index by agents each.
-- name: heads_of_agents
SELECT coalesce(
    json_agg(json_build_array(
        task_id, context_id, owner, state, status_at, seq, node, agent, parent, child, wake_at
    )),
    '[]'
)
FROM (
    SELECT t.*
    FROM (SELECT DISTINCT unnest(:agents::text[]) AS name) AS a CROSS JOIN LATERAL (
        (
            SELECT *
            FROM tasks
            WHERE state >= 5 AND agent = a.name AND tenant = :tenant /*filters*/ /*after*/
            ORDER BY status_at DESC, task_id DESC
            LIMIT :limit::bigint
        )
        UNION ALL
        (
            SELECT *
            FROM tasks
            WHERE state <= 4 AND agent = a.name AND tenant = :tenant /*filters*/ /*after*/
            ORDER BY status_at DESC, task_id DESC
            LIMIT :limit::bigint
        )
    ) AS t
    ORDER BY t.status_at DESC, t.task_id DESC
    LIMIT :limit::bigint
) AS page;

-- name: count_heads
SELECT count(*) FROM tasks WHERE tenant = :tenant /*filters*/;

-- name: filter_principal
AND owner = :principal;

-- name: filter_agents
AND agent = ANY (:agents::text[]);

-- name: filter_parent
AND parent = :parent AND parent <> '';

-- name: filter_context_id
AND context_id = :context_id;

-- name: filter_state
AND state = :state::smallint;

-- What is open has an index of its own.
-- name: filter_open_state
AND state = :open_state::smallint AND state <= 4;

-- name: filter_open_states
AND state = ANY (:open_states::smallint[]) AND state <= 4;

-- name: filter_status_from
AND status_at >= :status_from::bigint;

-- name: filter_born_from
AND task_id >= :born_from AND parent = '';

-- name: filter_after
AND (status_at, task_id) < (:after_at::bigint, :after_id);

-- Findable by its sessions only if this one shows the name that it was given: a pooler may have another.
-- name: join
INSERT INTO nodes (id, key, beat, agents, process)
SELECT :node, :key, now_ms(), :agents::text[], coalesce(max(:process::text), '')
FROM pg_stat_activity
WHERE pid = pg_backend_pid() AND split_part(application_name, ' ', 3) = :process
ON CONFLICT (id) DO UPDATE SET beat = now_ms(), gone = false, agents = excluded.agents, process = excluded.process;

-- name: lock_node
SELECT pg_try_advisory_lock(:key::bigint);

-- name: unlock_node
SELECT pg_advisory_unlock(:key::bigint);

-- A row that was tidied away while its node could not beat comes back.
-- name: beat
INSERT INTO nodes (id, key, beat, agents)
SELECT n.id, n.key, now_ms(), ARRAY(SELECT jsonb_array_elements_text(n.agents::jsonb))
FROM unnest(:nodes::text[], :keys::bigint[], :agents::text[]) AS n (id, key, agents)
ON CONFLICT (id) DO UPDATE SET beat = now_ms() WHERE NOT nodes.gone;

-- name: leave
UPDATE nodes SET gone = true WHERE id = ANY (:nodes::text[]);

-- What shows of each node: whether its lock is held and, if not, whether any session of its process is there.
-- A free lock is taken for the length of this statement only, and shared with whoever else looks.
-- name: nodes
SELECT
    n.id, n.agents, n.gone, now_ms() - n.beat, n.locked, n.process <> '',
    NOT n.locked AND EXISTS (
        SELECT FROM pg_stat_activity AS a WHERE split_part(a.application_name, ' ', 3) = n.process
    ),
    (extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) * 1000)::bigint,
    n.beat
FROM (
    SELECT *, NOT gone AND NOT pg_try_advisory_xact_lock_shared(key) AS locked
    FROM nodes
) AS n;

-- Tasks of these nodes ('' among them: what was let go): those that run, and of any state that is not ended
-- those whose time has come, as they were parked or ask a question with a deadline. The third part finds those
-- of nodes that nobody has heard of; it passes over all that run, so it is left out most of the time.
-- name: orphans
SELECT tenant, task_id, context_id, owner, state, status_at, seq, node, agent, parent, child, wake_at
FROM (
    SELECT *
    FROM tasks
    WHERE state <= 4 AND state = ANY ('{1,2}'::smallint[]) AND agent = ANY (:agents::text[])
        AND node = ANY (:dead::text[]) AND wake_at IS NULL
    UNION ALL
    SELECT *
    FROM tasks
    WHERE state <= 4 AND state = ANY ('{1,2,3,4}'::smallint[]) AND agent = ANY (:agents::text[])
        AND node = ANY (:dead::text[]) AND wake_at <= (SELECT coalesce(:now::bigint, now_ms()))
    UNION ALL
    SELECT *
    FROM tasks
    WHERE :search::boolean AND state <= 4 AND agent = ANY (:agents::text[]) AND node > ''
        AND node NOT IN (SELECT id FROM nodes)
        AND (state <= 2 OR wake_at <= (SELECT coalesce(:now::bigint, now_ms())))
) AS found
ORDER BY status_at, task_id
LIMIT :limit::bigint;

-- name: claimed
SELECT tenant, task_id, node, agent, seq
FROM tasks
WHERE state <= 4 AND state = ANY ('{1,2}'::smallint[]) AND agent = ANY (:agents::text[])
    AND wake_at IS NULL AND node = :node AND task_id > :after
ORDER BY task_id
LIMIT :limit::bigint;

-- Open tasks of agents that no node carries, by a leap from one agent to the next.
-- name: waiting
WITH RECURSIVE agents (agent) AS (
    (SELECT t.agent FROM tasks AS t WHERE t.state <= 4 ORDER BY t.agent LIMIT 1)
    UNION ALL
    SELECT (SELECT t.agent FROM tasks AS t WHERE t.state <= 4 AND t.agent > agents.agent ORDER BY t.agent LIMIT 1)
    FROM agents
    WHERE agents.agent IS NOT NULL
)
SELECT t.tenant, t.task_id, t.agent, t.state
FROM tasks AS t
WHERE t.state <= 4 AND t.task_id > :after AND t.tenant = coalesce(:tenant::text, t.tenant)
    AND t.agent = ANY (ARRAY(SELECT agent FROM agents WHERE agent <> ALL (:carried::text[])))
ORDER BY t.task_id
LIMIT :limit::bigint;

-- Open tasks with a moment, by when that was recorded: the event of the head tells it.
-- name: parked
SELECT t.tenant, t.task_id, t.wake_at, e.at
FROM tasks AS t CROSS JOIN LATERAL (
    SELECT at FROM events WHERE task_id = t.task_id AND first <= t.seq ORDER BY first DESC LIMIT 1
) AS e
WHERE t.state <= 4 AND t.wake_at > 0 AND t.wake_at < :never::bigint AND t.task_id > :after AND e.at > :since::bigint
ORDER BY t.task_id
LIMIT :limit::bigint;

-- Those that were spoken to since wake by themselves.
-- name: rested_children
SELECT c.tenant, c.task_id
FROM tasks AS p JOIN tasks AS c ON c.task_id = p.child AND c.tenant = p.tenant AND c.state >= 3
WHERE p.child <> '' AND p.wake_at > 0
ORDER BY p.task_id
LIMIT :limit::bigint;

-- name: open_children_of_ended
SELECT c.tenant, c.task_id
FROM tasks AS c JOIN tasks AS p ON p.task_id = c.parent AND p.tenant = c.tenant AND p.state >= 5
WHERE c.parent <> '' AND c.state <= 4
ORDER BY c.task_id
LIMIT :limit::bigint;

-- A lane is read from its oldest on, as far as it is needed, however little the planner knows of it.
-- name: along_indexes
SET LOCAL enable_bitmapscan = off; SET LOCAL enable_seqscan = off;

-- Leaps from lane to lane, however much is in them.
-- name: due_lanes
WITH RECURSIVE moment (now) AS MATERIALIZED (SELECT coalesce(:now::bigint, now_ms())),
lanes (lane) AS (
    (SELECT o.lane FROM outbox AS o WHERE o.due IS NOT NULL ORDER BY o.lane LIMIT 1)
    UNION ALL
    SELECT (
        SELECT o.lane FROM outbox AS o WHERE o.due IS NOT NULL AND o.lane > lanes.lane ORDER BY o.lane LIMIT 1
    )
    FROM lanes
    WHERE lanes.lane IS NOT NULL
)
SELECT lanes.lane, first.ready
FROM lanes
    CROSS JOIN LATERAL (
        SELECT greatest(o.due, o.lease_until) AS ready
        FROM outbox AS o
        WHERE o.due IS NOT NULL AND o.lane = lanes.lane
        ORDER BY greatest(o.due, o.lease_until)
        LIMIT 1
    ) AS first
WHERE first.ready <= (SELECT now FROM moment);

-- Looks for an earlier one from the nearest on: one that waits has it right before itself.
-- name: due_deliveries
SELECT few.ready, lanes.lane, few.id
FROM unnest(:lanes::text[]) AS lanes (lane)
    CROSS JOIN LATERAL (
        SELECT o.id, greatest(o.due, o.lease_until) AS ready
        FROM outbox AS o
        WHERE o.due IS NOT NULL AND o.lane = lanes.lane
            AND greatest(o.due, o.lease_until) <= (SELECT coalesce(:now::bigint, now_ms()))
            AND (
                SELECT true
                FROM outbox AS earlier
                WHERE earlier.tenant = o.tenant AND earlier.task_id = o.task_id
                    AND earlier.target = o.target AND (earlier.seq, earlier.id) < (o.seq, o.id)
                    AND earlier.due IS NOT NULL
                ORDER BY earlier.seq DESC, earlier.id DESC
                LIMIT 1
            ) IS NULL
        ORDER BY greatest(o.due, o.lease_until)
        LIMIT :per_lane::bigint
    ) AS few;

-- What somebody else is taking is passed over, and the next one taken instead.
-- name: lease
WITH moment (now) AS MATERIALIZED (SELECT coalesce(:now::bigint, now_ms())),
chosen AS MATERIALIZED (
    SELECT o.id
    FROM unnest(:ids::text[]) WITH ORDINALITY AS wanted (id, place) JOIN outbox AS o ON o.id = wanted.id
    WHERE o.due IS NOT NULL AND greatest(o.due, o.lease_until) <= (SELECT now FROM moment)
    ORDER BY wanted.place
    LIMIT :limit::bigint
    FOR UPDATE OF o SKIP LOCKED
)
UPDATE outbox AS o
SET lease_until = (SELECT now FROM moment) + :lease::bigint, attempts = o.attempts + 1
FROM chosen
WHERE o.id = chosen.id
RETURNING o.id, o.tenant, o.task_id, o.seq, o.target, o.lane, o.due, o.attempts - 1;

-- In the order of their ids, so that two who settle wait for each other in one order only.
-- name: settle
WITH settled AS MATERIALIZED (
    SELECT *
    FROM json_to_recordset(:settled::json)
        AS s (id text, outcome text, next_due bigint, status bigint, note text, untried boolean)
),
held AS MATERIALIZED (
    SELECT o.id
    FROM outbox AS o
    WHERE o.id IN (SELECT id FROM settled) AND o.due IS NOT NULL
    ORDER BY o.id
    FOR UPDATE
)
UPDATE outbox AS o
SET due = CASE WHEN s.outcome = 'retry' THEN s.next_due + coalesce(:now::bigint, now_ms()) - :here::bigint END,
    lease_until = 0, state = CASE WHEN s.outcome = 'retry' THEN 'pending' ELSE s.outcome END,
    status = s.status, note = s.note, at = coalesce(:now::bigint, now_ms()),
    attempts = o.attempts - s.untried::int
FROM settled AS s
WHERE o.id = s.id AND o.id IN (SELECT id FROM held);

-- What follows a retry comes no earlier. Else all of it would be looked at again at every take.
-- name: hold_back
UPDATE outbox AS o
SET due = after.due
FROM (
    SELECT later.id, one.due
    FROM unnest(:ids::text[]) AS s (id)
        JOIN outbox AS one ON one.id = s.id
        JOIN outbox AS later
            ON later.tenant = one.tenant AND later.task_id = one.task_id AND later.target = one.target
            AND (later.seq, later.id) > (one.seq, one.id) AND later.due < one.due
    ORDER BY later.id
    FOR UPDATE OF later
) AS after
WHERE o.id = after.id;

-- A lane, or a host: the lanes of one are itself with a space and whose they are.
-- name: expire
UPDATE outbox
SET due = NULL, lease_until = 0, state = 'dead', note = :note
WHERE id IN (
    SELECT o.id
    FROM outbox AS o
    WHERE o.due IS NOT NULL AND o.lane >= :lane AND o.lane < :lane || '!'
        AND greatest(o.due, o.lease_until)
            < :before::bigint + (SELECT coalesce(:now::bigint, now_ms())) - :here::bigint
        AND o.lease_until <= (SELECT coalesce(:now::bigint, now_ms()))
    LIMIT :limit::bigint
    FOR UPDATE SKIP LOCKED
)
RETURNING 1;

-- After the clock was set back: each waits for as long as it was to wait after its last attempt, at most.
-- name: rebase_deliveries
WITH moment (now) AS MATERIALIZED (SELECT coalesce(:now::bigint, now_ms()))
UPDATE outbox AS o
SET due = CASE WHEN o.at = 0 THEN least(o.due, m.now) WHEN o.at > m.now THEN m.now + greatest(0, o.due - o.at)
        ELSE o.due END,
    at = least(o.at, m.now), lease_until = least(o.lease_until, m.now + :lease::bigint)
FROM moment AS m
WHERE o.due IS NOT NULL AND greatest(o.due, o.lease_until) > m.now
    AND (o.at = 0 OR o.at > m.now OR o.lease_until > m.now + :lease::bigint)
RETURNING 1;

-- name: replay
UPDATE outbox
SET due = coalesce(:now::bigint, now_ms()), attempts = 0, state = 'pending'
WHERE id = :id AND due IS NULL
RETURNING 1;

-- name: deliveries
SELECT id, tenant, task_id, seq, target, lane, state, due, attempts, status, note, at
FROM outbox
WHERE true /*filters*/
ORDER BY id DESC
LIMIT :limit::bigint;

-- name: filter_delivery_tenant
AND tenant = :tenant;

-- A task id exists once, so it leads to its tenant and to the rows by their key.
-- name: filter_delivery_task
AND task_id = :task_id
AND tenant = (SELECT e.tenant FROM events AS e WHERE e.task_id = :task_id ORDER BY e.first LIMIT 1);

-- name: filter_delivery_state
AND state = :state;

-- name: filter_pending
AND due IS NOT NULL;

-- name: filter_given_up
AND state = :state AND state IN ('dead', 'dropped');

-- name: filter_delivery_after
AND id < :after;

-- name: now
SELECT now_ms();

-- name: fire
INSERT INTO fires (schedule, planned_at) VALUES (:schedule, :planned_at)
ON CONFLICT DO NOTHING
RETURNING 1;

-- name: get_doc
SELECT id, rev, body FROM docs WHERE tenant = :tenant AND kind = :kind AND id = :id AND gone_at IS NULL;

-- name: list_docs
SELECT id, rev, body
FROM docs
WHERE tenant = :tenant AND kind = :kind AND id > :after AND gone_at IS NULL
ORDER BY id
LIMIT :limit::bigint;

-- name: docs_size
SELECT coalesce(sum(octet_length(body)), 0)
FROM docs
WHERE tenant = :tenant AND kind = :kind AND gone_at IS NULL;

-- name: docs_of
SELECT kind, id
FROM docs
WHERE tenant = :tenant AND gone_at IS NULL
LIMIT :limit::bigint;

-- name: hold_doc
SELECT 1
FROM docs
WHERE tenant = :tenant AND kind = :kind AND id = :id AND body = :body AND gone_at IS NULL
FOR UPDATE;

-- name: doc_kinds
SELECT DISTINCT kind FROM docs WHERE gone_at IS NULL ORDER BY kind;

-- name: every_doc
SELECT tenant, id, rev, body
FROM docs
WHERE kind = :kind AND (tenant, id) > (:after, :after_id) AND gone_at IS NULL
ORDER BY tenant, id
LIMIT :limit::bigint;

-- From the oldest transaction that was still writing at the last look, so that none is missed; those that
-- are younger and were seen then are told again. Inside a look pages follow each other by (xid, tenant, id).
-- name: doc_changes
SELECT
    pg_snapshot_xmin(pg_current_snapshot())::text, d.xid::text, d.tenant, d.id, d.rev, d.body, d.gone_at IS NOT NULL
FROM (VALUES (1)) AS always (one)
    LEFT JOIN docs AS d ON d.kind = :kind AND (d.xid, d.tenant, d.id) > (:xid::text::xid8, :after, :after_id)
ORDER BY d.xid, d.tenant, d.id
LIMIT :limit::bigint;

-- name: add_doc
INSERT INTO docs AS d (tenant, kind, id, rev, body) VALUES (:tenant, :kind, :id, 1, :body)
ON CONFLICT (tenant, kind, id) DO UPDATE SET rev = 1, body = excluded.body, gone_at = NULL
WHERE d.gone_at IS NOT NULL
RETURNING rev;

-- name: put_doc
UPDATE docs SET rev = rev + 1, body = :body
WHERE tenant = :tenant AND kind = :kind AND id = :id AND rev = :rev::bigint AND gone_at IS NULL
RETURNING rev;

-- name: delete_doc
UPDATE docs SET gone_at = coalesce(:now::bigint, now_ms()), body = ''
WHERE tenant = :tenant AND kind = :kind AND id = :id AND gone_at IS NULL
    AND (:body::bytea IS NULL OR body = :body::bytea)
RETURNING 1;

-- name: drop_gone_docs
DELETE FROM docs WHERE gone_at < (SELECT coalesce(:now::bigint, now_ms())) - :age::bigint;

-- Tasks in the order of their ids, over all partitions.
-- name: next_tasks
SELECT task_id, tenant
FROM events
WHERE first = 1 AND task_id > :after AND tenant = coalesce(:tenant::text, tenant)
ORDER BY task_id
LIMIT :limit::bigint;

-- Also those that only a head or a row in the middle of a log tells of.
-- name: every_task
SELECT DISTINCT tenant, task_id
FROM (
    (
        SELECT task_id, tenant FROM events
        WHERE task_id > :after AND first = 1 ORDER BY task_id LIMIT :limit::bigint
    )
    UNION ALL
    (SELECT task_id, tenant FROM tasks WHERE task_id > :after ORDER BY task_id LIMIT :limit::bigint)
) AS known
ORDER BY task_id, tenant
LIMIT :limit::bigint;

-- A page of tasks by id, the newest first: those of a tenant whose first append holds a text, and where it ends.
-- name: beginnings
WITH page AS MATERIALIZED (
    SELECT task_id
    FROM tasks
    WHERE tenant = :tenant AND task_id < :before
    ORDER BY task_id DESC
    LIMIT :limit::bigint
)
SELECT
    (
        SELECT coalesce(json_agg(p.task_id), '[]')
        FROM page AS p
        WHERE position(
            convert_to(:words::text, 'UTF8') IN (
                SELECT e.body
                FROM events AS e
                WHERE e.task_id = p.task_id AND e.tenant = :tenant
                ORDER BY e.first
                LIMIT 1
            )
        ) > 0
    ),
    count(*), min(task_id)
FROM page;

-- A page of the log: where it ends, and the tasks in it that have no first event.
-- name: without_first
WITH page AS MATERIALIZED (
    SELECT e.task_id, e.first
    FROM events AS e
    WHERE (e.task_id, e.first) > (:task_id, :first::bigint)
    ORDER BY e.task_id, e.first
    LIMIT :limit::bigint
)
SELECT last.task_id, last.first, ARRAY(
    SELECT DISTINCT p.task_id
    FROM page AS p
    WHERE NOT EXISTS (SELECT FROM events AS e WHERE e.task_id = p.task_id AND e.first = 1)
)
FROM page AS last
ORDER BY last.task_id DESC, last.first DESC
LIMIT 1;

-- A page of the deliveries, and whether their tasks are there.
-- name: without_task
SELECT o.id, o.task_id, EXISTS (SELECT FROM events AS e WHERE e.task_id = o.task_id AND e.tenant = o.tenant)
FROM outbox AS o
WHERE o.id > :after
ORDER BY o.id
LIMIT :limit::bigint;

-- Holds back whoever would write the same head until the fold of its log is written.
-- name: hold_heads
SELECT task_id FROM tasks WHERE task_id = ANY (:task_ids::text[]) ORDER BY task_id FOR UPDATE;

-- name: put_head
UPDATE tasks SET
    context_id = :context_id, owner = :principal, state = :state::smallint, status_at = :status_at, seq = :seq,
    node = :node, agent = :agent, parent = :parent, child = :child, wake_at = :wake_at
WHERE task_id = :task_id;

-- A head that came while the log was folded is newer.
-- name: add_head
INSERT INTO tasks (
    task_id, tenant, context_id, owner, state, status_at, seq, node, agent, parent, child, wake_at
)
VALUES (
    :task_id, :tenant, :context_id, :principal, :state::smallint, :status_at, :seq, :node, :agent, :parent, :child,
    :wake_at
)
ON CONFLICT (task_id) DO NOTHING;

-- name: drop_head
DELETE FROM tasks WHERE task_id = :task_id;

-- name: ended_tasks
SELECT status_at, task_id, tenant
FROM tasks
WHERE state >= 5 AND agent = :agent AND status_at < :before::bigint
    AND (status_at, task_id) > (:after_at::bigint, :after_id)
    AND (:tenant::text IS NULL OR tenant = :tenant::text)
ORDER BY status_at, task_id
LIMIT :limit::bigint;

-- The agents that have ended tasks, by a leap from one to the next.
-- name: ended_agents
WITH RECURSIVE agents (agent) AS (
    (SELECT t.agent FROM tasks AS t WHERE t.state >= 5 ORDER BY t.agent LIMIT 1)
    UNION ALL
    SELECT (SELECT t.agent FROM tasks AS t WHERE t.state >= 5 AND t.agent > agents.agent ORDER BY t.agent LIMIT 1)
    FROM agents
    WHERE agents.agent IS NOT NULL
)
SELECT agent FROM agents WHERE agent IS NOT NULL;

-- Those that ended and have enough to merge, with where the page ends.
-- name: long_tasks
WITH page AS (
    SELECT status_at, task_id
    FROM tasks
    WHERE state >= 5 AND agent = :agent AND status_at < :before::bigint
        AND (status_at, task_id) > (:after_at::bigint, :after_id)
    ORDER BY status_at, task_id
    LIMIT :limit::bigint
)
SELECT
    p.status_at,
    p.task_id,
    (SELECT count(*) FROM (SELECT FROM events AS e WHERE e.task_id = p.task_id LIMIT :rows::bigint) AS few)
        >= :rows::bigint
    OR (
        SELECT e.last FROM events AS e WHERE e.task_id = p.task_id ORDER BY e.first DESC LIMIT 1
    ) >= :events::bigint,
    (SELECT coalesce(sum(octet_length(e.body)), 0) FROM events AS e WHERE e.task_id = p.task_id) <= :bytes::bigint
FROM page AS p
ORDER BY p.status_at, p.task_id;

-- What waits to be posted keeps its task, unless it has been due for five days longer: that is more than
-- any retry takes, so nobody posts here any more.
-- name: tasks_of
SELECT task_id FROM tasks WHERE tenant = :tenant AND task_id = ANY (:task_ids::text[]);

-- name: drop_tasks
DELETE FROM tasks
WHERE task_id IN (
    SELECT task_id
    FROM tasks
    WHERE task_id = ANY (:task_ids::text[]) AND state >= 5 AND status_at < :before::bigint
        AND NOT EXISTS (
            SELECT FROM outbox AS o
            WHERE o.tenant = tasks.tenant AND o.task_id = tasks.task_id
                AND o.due >= :before::bigint - 432000000
        )
    ORDER BY task_id
    FOR UPDATE
)
RETURNING task_id;

-- Up to which number events of each tenant are forgotten: who comes back to an earlier place has missed some.
-- name: mark_pruned
INSERT INTO marks (name, value)
SELECT 'pruned ' || tenant, max(xid::text::bigint)
FROM events
WHERE task_id = ANY (:task_ids::text[])
GROUP BY tenant
ORDER BY tenant
ON CONFLICT (name) DO UPDATE SET value = greatest(marks.value, excluded.value);

-- A cursor behind a transaction is before the next one.
-- name: pruned
SELECT value + 1 FROM marks WHERE name = 'pruned ' || :tenant;

-- name: drop_events
DELETE FROM events WHERE task_id = ANY (:task_ids::text[]);

-- name: drop_deliveries_of
DELETE FROM outbox WHERE (tenant, task_id) IN (SELECT * FROM unnest(:tenants::text[], :task_ids::text[]));

-- name: drop_remains
WITH gone AS (
    DELETE FROM events AS e
    WHERE e.task_id = ANY (:task_ids::text[])
        AND NOT EXISTS (SELECT FROM events AS b WHERE b.task_id = e.task_id AND b.first = 1)
    RETURNING e.tenant, e.task_id
)
DELETE FROM outbox WHERE (tenant, task_id) IN (SELECT tenant, task_id FROM gone);

-- name: drop_stale_keys
DELETE FROM dedup
WHERE (tenant, key) IN (
    SELECT tenant, key FROM dedup
    WHERE expires_at <= (SELECT coalesce(:now::bigint, now_ms()))
    LIMIT :limit::bigint
)
RETURNING 1;

-- name: drop_keys_of
DELETE FROM dedup
WHERE tenant = :tenant AND key IN (SELECT key FROM dedup WHERE tenant = :tenant LIMIT :limit::bigint)
RETURNING 1;

-- name: drop_fires
DELETE FROM fires
WHERE (schedule, planned_at) IN (
    SELECT schedule, planned_at FROM fires WHERE planned_at < :before::bigint LIMIT :limit::bigint
)
RETURNING 1;

-- name: drop_nodes
DELETE FROM nodes
WHERE id = ANY (:nodes::text[]) AND beat < now_ms() - :age::bigint
    AND id NOT IN (SELECT t.node FROM tasks AS t WHERE t.state <= 2);

-- name: mark
SELECT value FROM marks WHERE name = :mark;

-- name: put_mark
INSERT INTO marks (name, value) VALUES (:mark, :value)
ON CONFLICT (name) DO UPDATE SET value = greatest(marks.value, excluded.value);

-- name: hold_head
SELECT 1 FROM tasks WHERE task_id = :task_id AND state >= 5 FOR UPDATE;

-- name: lasts
SELECT last FROM events WHERE task_id = :task_id ORDER BY first;

-- name: read_rows
SELECT last, at, body FROM events WHERE task_id = :task_id ORDER BY first;

-- name: drop_rows
DELETE FROM events WHERE task_id = :task_id AND last = ANY (:lasts::bigint[]);

-- name: put_row
UPDATE events SET first = :first::bigint, body = :body WHERE task_id = :task_id AND last = :last::bigint;

-- name: notify
SELECT pg_notify(:channel, p.payload) FROM unnest(:payloads::text[]) AS p (payload);

-- The moment is that of the first statement that asks for something.
-- name: begin_snapshot
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT 1;

-- name: set_tenant
SELECT set_config('trunkline.tenant', :tenant, false);
