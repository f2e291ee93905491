-- How far each reader of a session is. The texts are cursors as readers get them with events; a cursor at or below the
-- session's purge_entry_seq belongs to a deleted life and counts as none.
CREATE TABLE IF NOT EXISTS butler_cursors (
  session_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  reader VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  seen VARCHAR(80) CHARACTER SET ascii COLLATE ascii_bin NULL,
  acknowledged VARCHAR(80) CHARACTER SET ascii COLLATE ascii_bin NULL,
  updated_at DATETIME(3) NOT NULL,
  PRIMARY KEY (session_id, reader)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin ROW_FORMAT = DYNAMIC;
