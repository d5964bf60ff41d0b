-- The slots of a task's job. A split that was begun before has jobs of one slot, or as many
-- as its definition says: 0 stands for that.
ALTER TABLE task ADD COLUMN slots INTEGER NOT NULL DEFAULT 0;
