-- One row per session: everything that is decided about a session is decided under the lock of this row.
-- Numbers only rise. A row is never removed: deleting marks it (deleted_at) and what lies at or below purge_seq and
-- purge_entry_seq belongs to a deleted life of the session and goes away in small bites; a revived session counts on.
-- Ids are ascii_bin so that 'AbC' and 'abc' are two sessions whatever collation the database defaults to.
CREATE TABLE IF NOT EXISTS butler_sessions (
  id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  -- the last number given out; every message up to done_seq is final; up to stop_seq nothing may start
  inbox_seq BIGINT NOT NULL DEFAULT 0,
  done_seq BIGINT NOT NULL DEFAULT 0,
  stop_seq BIGINT NOT NULL DEFAULT 0,
  -- the message whose turn runs now, and who may run turns at all
  running_seq BIGINT NULL,
  owner VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,
  epoch BIGINT NOT NULL DEFAULT 0,
  -- counters of the message at done_seq + 1, reset when it is done
  starts INT NOT NULL DEFAULT 0,
  failures INT NOT NULL DEFAULT 0,
  handovers INT NOT NULL DEFAULT 0,
  crashes INT NOT NULL DEFAULT 0,
  retry_at DATETIME(3) NULL,
  -- the last transcript number
  entry_seq BIGINT NOT NULL DEFAULT 0,
  -- not NULL exactly while inbox_seq > done_seq, so the index below holds only sessions with work, oldest first
  waiting_since DATETIME(3) NULL,
  -- owner while a turn runs, so the index below holds only running sessions: one range per process
  running_by VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin
    GENERATED ALWAYS AS (CASE WHEN running_seq IS NULL THEN NULL ELSE owner END) VIRTUAL,
  purge_seq BIGINT NOT NULL DEFAULT 0,
  purge_entry_seq BIGINT NOT NULL DEFAULT 0,
  deleted_at DATETIME(3) NULL,
  created_at DATETIME(3) NOT NULL,
  updated_at DATETIME(3) NOT NULL,
  PRIMARY KEY (id),
  KEY butler_sessions_waiting (waiting_since, id),
  KEY butler_sessions_running (running_by),
  KEY butler_sessions_deleted (deleted_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin ROW_FORMAT = DYNAMIC;
