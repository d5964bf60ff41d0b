-- Victims that are asked to save themselves, and what jobs lost.

ALTER TABLE victim ADD COLUMN save INTEGER NOT NULL DEFAULT 0; -- the time that it had for that; 0: it was not asked
ALTER TABLE victim ADD COLUMN saved TEXT NOT NULL DEFAULT ''; -- saved, failed; '': not asked, or not known yet

ALTER TABLE job_memory ADD COLUMN lost REAL NOT NULL DEFAULT 0; -- slot-seconds of work
ALTER TABLE job_memory ADD COLUMN gave_way INTEGER NOT NULL DEFAULT 0;
