-- Deliveries stay until their task is forgotten. One is pending while it has a due; `state` says what
-- became of the others, `status`, `note` and `at` (its end) tell of the last attempt.
ALTER TABLE outbox
    ADD COLUMN lane text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN state text COLLATE "C" NOT NULL DEFAULT 'pending',
    ADD COLUMN status bigint NOT NULL DEFAULT 0,
    ADD COLUMN note text NOT NULL DEFAULT '',
    ADD COLUMN at bigint NOT NULL DEFAULT 0;
UPDATE outbox SET state = 'dead' WHERE due IS NULL;

-- By the moment from which it may be taken, so that those on lease are not in the way. Entries of one
-- moment stay apart, because those of settled deliveries are only then passed over without a look.
DROP INDEX outbox_by_due;
CREATE INDEX outbox_by_lane ON outbox (lane, greatest(due, lease_until)) WITH (deduplicate_items = off)
WHERE due IS NOT NULL;
CREATE INDEX outbox_given_up ON outbox (state, id) WHERE state IN ('dead', 'dropped');
