-- The transcript: entry_seq is dense per session, so a reader that sees a hole knows that it has to look again.
-- Only the owner of the session writes here. (session_id, seq, step_key) makes a memoised step exist once per message,
-- whatever attempt finished it; rows that are no step have a NULL key, which the unique key ignores.
CREATE TABLE IF NOT EXISTS butler_entries (
  session_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  entry_seq BIGINT NOT NULL,
  seq BIGINT NOT NULL,
  epoch BIGINT NOT NULL,
  attempt INT NOT NULL,
  type VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  step_key VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NULL,
  call_id VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NULL,
  payload LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  created_at DATETIME(3) NOT NULL,
  PRIMARY KEY (session_id, entry_seq),
  UNIQUE KEY butler_entries_step (session_id, seq, step_key),
  KEY butler_entries_created (created_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin ROW_FORMAT = DYNAMIC;
