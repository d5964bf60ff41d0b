PRAGMA page_size = 1024;
PRAGMA application_id = 1634495599;
PRAGMA user_version = 2;
CREATE TABLE spec (-- as submitted; lists (command, env, host): n = 0, 1...
key TEXT NOT NULL, n INTEGER NOT NULL, value NOT NULL, PRIMARY KEY (key, n)) WITHOUT ROWID;
CREATE TABLE history (-- what happened; the key's columns come first: integrity_check of SQLite 3.40 wants that
seq INTEGER NOT NULL, n INTEGER NOT NULL, -- its place in the queue's journal, or of a host's lines
run INTEGER NOT NULL, -- 0: none
host TEXT NOT NULL, -- whose line it is; empty: the queue's
at TEXT NOT NULL, event TEXT NOT NULL, detail TEXT NOT NULL,
PRIMARY KEY (seq, n, run, host)) WITHOUT ROWID;
CREATE TABLE results (-- a row a run and host
run INTEGER NOT NULL, host TEXT NOT NULL, started TEXT NOT NULL, ended TEXT, exit_code INTEGER, -- -1: unknown
user_us INTEGER, system_us INTEGER, max_rss INTEGER, -- bytes
why TEXT, -- it ended; empty: by itself
PRIMARY KEY (run, host)) WITHOUT ROWID;
