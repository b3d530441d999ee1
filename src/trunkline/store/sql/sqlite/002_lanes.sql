-- Deliveries stay until their task is forgotten. One is pending while it has a due; `state` says what
-- became of the others, `status`, `note` and `at` (its end) tell of the last attempt.
ALTER TABLE outbox ADD COLUMN lane TEXT NOT NULL DEFAULT '';
ALTER TABLE outbox ADD COLUMN state TEXT NOT NULL DEFAULT 'pending';
ALTER TABLE outbox ADD COLUMN status INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outbox ADD COLUMN note TEXT NOT NULL DEFAULT '';
ALTER TABLE outbox ADD COLUMN at INTEGER NOT NULL DEFAULT 0;
UPDATE outbox SET state = 'dead' WHERE due IS NULL;

-- By the moment from which it may be taken, so that those on lease are not in the way.
DROP INDEX outbox_by_due;
CREATE INDEX outbox_by_lane ON outbox (lane, max(due, lease_until)) WHERE due IS NOT NULL;
CREATE INDEX outbox_given_up ON outbox (state, id) WHERE state IN ('dead', 'dropped');
