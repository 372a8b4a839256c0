CREATE TEMPORARY VIEW flights USING parquet OPTIONS (path '${clean}');
CREATE TEMPORARY VIEW before USING parquet OPTIONS (path '${before}');
INSERT OVERWRITE DIRECTORY '${totals}' USING parquet
SELECT airport, sum(n) AS n FROM (
  SELECT airport, 1L AS n FROM flights UNION ALL SELECT airport, n FROM before
) GROUP BY airport;
INSERT OVERWRITE DIRECTORY '${league}' USING csv OPTIONS (header 'true')
SELECT * FROM parquet.`${totals}`;
