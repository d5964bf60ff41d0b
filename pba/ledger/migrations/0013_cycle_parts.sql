-- When a cycle had read the queue, and when its plan was made: what part of it takes long.

ALTER TABLE cycle ADD COLUMN was_read INTEGER NOT NULL DEFAULT 0; -- 0: not known
ALTER TABLE cycle ADD COLUMN planned INTEGER NOT NULL DEFAULT 0;
