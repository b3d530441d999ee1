-- What the sessions of a node's process have in their names; '' where nobody could find them by it, as with the
-- nodes of the version before.
ALTER TABLE nodes ADD COLUMN process text COLLATE "C" NOT NULL DEFAULT '';
