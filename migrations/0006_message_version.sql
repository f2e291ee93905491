-- Which form of messages a row has. A process leaves what is newer than it understands to one that does. Rows of a
-- version that does not know this column are of form 1. (MySQL has no ADD COLUMN IF NOT EXISTS.)
SET @add_version = IF(
  EXISTS (
    SELECT 1 FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'butler_messages' AND column_name = 'version'
  ),
  'DO 0',
  'ALTER TABLE butler_messages ADD COLUMN version SMALLINT NOT NULL DEFAULT 1'
);
PREPARE add_version FROM @add_version;
EXECUTE add_version;
DEALLOCATE PREPARE add_version;
