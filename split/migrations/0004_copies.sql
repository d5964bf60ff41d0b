-- The number of the task whose items this one executes, too; 0, if it is no copy.
ALTER TABLE task ADD COLUMN copy_of INTEGER NOT NULL DEFAULT 0;
