-- What producers sent, numbered densely per session. The idempotency key is unique per session and always set (the
-- message's own id when the caller gave none), so a repeated enqueue finds its first copy; the fingerprint tells a
-- repetition from another message under the same key. status is written only for stopped, failed and withdrawn:
-- a message at or below done_seq without one is completed, above it it waits.
CREATE TABLE IF NOT EXISTS butler_messages (
  session_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  seq BIGINT NOT NULL,
  id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  idempotency_key VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  fingerprint CHAR(43) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  kind VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  source VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  payload LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  status VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NULL,
  error TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  traceparent VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,
  -- the failed message that this one repeats
  retry_of BIGINT NULL,
  created_at DATETIME(3) NOT NULL,
  PRIMARY KEY (session_id, seq),
  UNIQUE KEY butler_messages_key (session_id, idempotency_key),
  KEY butler_messages_created (created_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin ROW_FORMAT = DYNAMIC;
