PRAGMA page_size = 1024;
PRAGMA application_id = 1634495599;
PRAGMA user_version = 1;
CREATE TABLE spec (-- as submitted; lists (command, env, host): n = 0, 1...
key TEXT NOT NULL, n INTEGER NOT NULL, value NOT NULL, PRIMARY KEY (key, n)) WITHOUT ROWID;
CREATE TABLE history (-- what happened
seq INTEGER NOT NULL, n INTEGER NOT NULL, -- its place in the queue's journal
at TEXT NOT NULL, run INTEGER NOT NULL, -- 0: none
event TEXT NOT NULL, detail TEXT NOT NULL, PRIMARY KEY (seq, n)) WITHOUT ROWID;
CREATE TABLE results (-- a row a run
run INTEGER PRIMARY KEY, host TEXT NOT NULL, started TEXT NOT NULL, ended TEXT, exit_code INTEGER, -- -1: unknown
user_us INTEGER, system_us INTEGER, max_rss INTEGER, -- bytes
why TEXT -- it ended; empty: by itself
);
