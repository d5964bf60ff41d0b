-- The number of the task with which the worker's job began that this task was given to: its own,
-- if its job stays as a worker after it; 0, if its job ends with it.
ALTER TABLE task ADD COLUMN worker INTEGER NOT NULL DEFAULT 0;
