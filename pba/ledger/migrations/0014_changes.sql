-- What one command changed belongs together, has a comment, and can be undone.

ALTER TABLE edit ADD COLUMN change  INTEGER NOT NULL DEFAULT 0;  -- the id of the first row of the same command
ALTER TABLE edit ADD COLUMN command TEXT    NOT NULL DEFAULT ''; -- alloc import …; '': the same as what
ALTER TABLE edit ADD COLUMN comment TEXT    NOT NULL DEFAULT '';
ALTER TABLE edit ADD COLUMN undoes  INTEGER NOT NULL DEFAULT 0;  -- the change that this one undoes
ALTER TABLE edit ADD COLUMN project INTEGER NOT NULL DEFAULT 0;  -- 0: concerns none
ALTER TABLE edit ADD COLUMN pool    INTEGER NOT NULL DEFAULT 0;  -- whose slots; 0: no allocation, or older than this column
ALTER TABLE edit ADD COLUMN year    INTEGER NOT NULL DEFAULT 0;  -- ISO year and week of the allocation
ALTER TABLE edit ADD COLUMN week    INTEGER NOT NULL DEFAULT 0;

-- The subject of older rows begins with the project's name.
UPDATE edit SET change = id, project = COALESCE((SELECT MAX(p.id) FROM project p
    WHERE edit.subject = p.name OR edit.subject GLOB p.name || '[ :]*'), 0)
    WHERE what LIKE 'alloc %' OR what LIKE 'project %';
UPDATE edit SET change = id WHERE change = 0;
CREATE INDEX edit_change ON edit (change);
CREATE INDEX edit_cell ON edit (pool, year, week);
