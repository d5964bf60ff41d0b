-- Which setting each item of a task has (JSON), of a split that tries settings; one: all items have
-- that; '': nothing is tried.
ALTER TABLE task ADD COLUMN cells TEXT NOT NULL DEFAULT '';
