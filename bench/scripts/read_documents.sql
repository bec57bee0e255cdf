SELECT count(*) FROM documents;
