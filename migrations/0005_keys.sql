-- API keys of the service. Of a secret only its SHA-256 is kept. scopes and tenants are JSON lists of text; tenants is
-- NULL for a key that is good for all.
CREATE TABLE IF NOT EXISTS butler_keys (
  id VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  secret_hash CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  name VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  scopes TEXT CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  tenants TEXT CHARACTER SET ascii COLLATE ascii_bin NULL,
  created_at DATETIME(3) NOT NULL,
  expires_at DATETIME(3) NULL,
  revoked_at DATETIME(3) NULL,
  used_at DATETIME(3) NULL,
  PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin ROW_FORMAT = DYNAMIC;
