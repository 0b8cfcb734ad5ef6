CREATE FUNCTION audit_log_refuse() RETURNS trigger
    LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'audit_log is append-only'; END $$;
CREATE TABLE archive_offer (
    id bigint NOT NULL,
    run bigint NOT NULL,
    ticket bigint NOT NULL,
    program bigint NOT NULL,
    instance bigint NOT NULL,
    fitness double precision NOT NULL,
    fitness_low double precision NOT NULL,
    fitness_high double precision NOT NULL,
    evaluations bigint NOT NULL,
    descriptors text NOT NULL COLLATE pg_catalog."C",
    sequence bigint NOT NULL,
    tunings bigint DEFAULT '0'::bigint NOT NULL,
    operator text NOT NULL COLLATE pg_catalog."C",
    parents text NOT NULL COLLATE pg_catalog."C",
    status bigint NOT NULL,
    slot text COLLATE pg_catalog."C",
    evicted bigint,
    moves text DEFAULT '{}'::text NOT NULL COLLATE pg_catalog."C"
);
CREATE SEQUENCE archive_offer_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE archive_offer_id_seq OWNED BY archive_offer.id;
CREATE TABLE archive_slot (
    run bigint NOT NULL,
    slot text NOT NULL COLLATE pg_catalog."C",
    program bigint NOT NULL,
    offer bigint NOT NULL
);
CREATE TABLE arm (
    run bigint NOT NULL,
    method text NOT NULL COLLATE pg_catalog."C",
    operator text NOT NULL COLLATE pg_catalog."C",
    model text NOT NULL COLLATE pg_catalog."C",
    told bigint DEFAULT '0'::bigint NOT NULL,
    tokens bigint DEFAULT '0'::bigint NOT NULL,
    usd double precision DEFAULT '0'::double precision NOT NULL,
    unpriced_tokens bigint DEFAULT '0'::bigint NOT NULL,
    device_time_s double precision DEFAULT '0'::double precision NOT NULL,
    gain double precision DEFAULT '0'::double precision NOT NULL,
    lead double precision DEFAULT '0'::double precision NOT NULL
);
CREATE TABLE audit_log (
    id bigint NOT NULL,
    "time" text NOT NULL COLLATE pg_catalog."C",
    "user" text NOT NULL COLLATE pg_catalog."C",
    host text NOT NULL COLLATE pg_catalog."C",
    action text NOT NULL COLLATE pg_catalog."C",
    run text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    detail text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C"
);
CREATE SEQUENCE audit_log_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE audit_log_id_seq OWNED BY audit_log.id;
CREATE TABLE blob (
    id bigint NOT NULL,
    sha256 bytea NOT NULL,
    codec character varying NOT NULL,
    bytes bytea NOT NULL,
    CONSTRAINT blob_codec_check CHECK (((codec)::text = ANY ((ARRAY['raw'::character varying, 'zlib'::character varying])::text[])))
);
CREATE SEQUENCE blob_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE blob_id_seq OWNED BY blob.id;
CREATE TABLE call (
    id bigint NOT NULL,
    request bigint NOT NULL,
    status text NOT NULL COLLATE pg_catalog."C",
    tokens_reserved bigint NOT NULL,
    usd_reserved double precision,
    tokens bigint,
    usd double precision,
    model text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    finish_reason text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    error text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    usage text COLLATE pg_catalog."C",
    cost_usd double precision,
    latency_s double precision DEFAULT '0'::double precision NOT NULL,
    attempts bigint DEFAULT '0'::bigint NOT NULL,
    started_s double precision DEFAULT '0'::double precision NOT NULL,
    reply bigint,
    reasoning bigint,
    trace bigint
);
CREATE SEQUENCE call_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE call_id_seq OWNED BY call.id;
CREATE TABLE charge (
    day text NOT NULL COLLATE pg_catalog."C",
    "user" text NOT NULL COLLATE pg_catalog."C",
    project text NOT NULL COLLATE pg_catalog."C",
    device_time_s double precision DEFAULT '0'::double precision NOT NULL
);
CREATE TABLE credit (
    ticket bigint NOT NULL,
    parent double precision NOT NULL,
    parent_low double precision NOT NULL,
    parent_high double precision NOT NULL,
    leader double precision NOT NULL,
    leader_low double precision NOT NULL,
    leader_high double precision NOT NULL,
    gain double precision DEFAULT '0'::double precision NOT NULL,
    lead double precision DEFAULT '0'::double precision NOT NULL
);
CREATE TABLE evaluation (
    id bigint NOT NULL,
    ticket bigint NOT NULL,
    instance bigint NOT NULL,
    status text NOT NULL COLLATE pg_catalog."C",
    stage bigint NOT NULL,
    fidelity text NOT NULL COLLATE pg_catalog."C",
    task_revision text NOT NULL COLLATE pg_catalog."C",
    device_class text NOT NULL COLLATE pg_catalog."C",
    evaluator_version text NOT NULL COLLATE pg_catalog."C",
    custom bigint,
    suite bigint,
    cases text NOT NULL COLLATE pg_catalog."C",
    labels text NOT NULL COLLATE pg_catalog."C",
    descriptors text NOT NULL COLLATE pg_catalog."C",
    durations_s text NOT NULL COLLATE pg_catalog."C",
    device_time_s double precision DEFAULT '0'::double precision NOT NULL,
    feedback bigint,
    environment bigint,
    samples bigint
);
CREATE SEQUENCE evaluation_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE evaluation_id_seq OWNED BY evaluation.id;
CREATE TABLE evaluation_ratio (
    evaluation bigint NOT NULL,
    baseline text NOT NULL COLLATE pg_catalog."C",
    ratio double precision NOT NULL,
    ratio_low double precision NOT NULL,
    ratio_high double precision NOT NULL
);
CREATE TABLE instance (
    id bigint NOT NULL,
    digest bytea NOT NULL,
    program bigint NOT NULL,
    assignment text NOT NULL COLLATE pg_catalog."C"
);
CREATE SEQUENCE instance_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE instance_id_seq OWNED BY instance.id;
CREATE TABLE lease (
    run bigint NOT NULL,
    owner text NOT NULL COLLATE pg_catalog."C",
    host text NOT NULL COLLATE pg_catalog."C",
    machine text NOT NULL COLLATE pg_catalog."C",
    pid bigint NOT NULL,
    heartbeat double precision NOT NULL
);
CREATE TABLE program (
    id bigint NOT NULL,
    digest bytea NOT NULL,
    normalised bytea NOT NULL,
    source bigint NOT NULL,
    language text NOT NULL COLLATE pg_catalog."C"
);
CREATE SEQUENCE program_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE program_id_seq OWNED BY program.id;
CREATE TABLE quota (
    kind text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    usd double precision,
    device_time_s double precision,
    since text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE request (
    id bigint NOT NULL,
    run bigint NOT NULL,
    ticket bigint NOT NULL,
    round bigint NOT NULL,
    operator text NOT NULL COLLATE pg_catalog."C",
    purpose text NOT NULL COLLATE pg_catalog."C",
    key bytea NOT NULL,
    sample bigint NOT NULL,
    model text NOT NULL COLLATE pg_catalog."C",
    parameters text NOT NULL COLLATE pg_catalog."C",
    memo text NOT NULL COLLATE pg_catalog."C",
    reading text COLLATE pg_catalog."C",
    revision bigint DEFAULT '0'::bigint NOT NULL,
    judged bigint DEFAULT '0'::bigint NOT NULL,
    replaced text COLLATE pg_catalog."C"
);
CREATE SEQUENCE request_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE request_id_seq OWNED BY request.id;
CREATE TABLE request_message (
    request bigint NOT NULL,
    "position" bigint NOT NULL,
    role text NOT NULL COLLATE pg_catalog."C",
    content bigint NOT NULL
);
CREATE TABLE run (
    id bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    task bigint NOT NULL,
    config text NOT NULL COLLATE pg_catalog."C",
    seed bigint NOT NULL,
    baseline text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    reason text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    created text NOT NULL COLLATE pg_catalog."C",
    asked bigint DEFAULT '0'::bigint NOT NULL,
    proposals bigint DEFAULT '0'::bigint NOT NULL,
    tunings bigint DEFAULT '0'::bigint NOT NULL,
    evaluations bigint DEFAULT '0'::bigint NOT NULL,
    screens bigint DEFAULT '0'::bigint NOT NULL,
    device_time_s double precision DEFAULT '0'::double precision NOT NULL,
    active_s double precision DEFAULT '0'::double precision NOT NULL,
    calls bigint DEFAULT '0'::bigint NOT NULL,
    tokens bigint DEFAULT '0'::bigint NOT NULL,
    tokens_reserved bigint DEFAULT '0'::bigint NOT NULL,
    usd double precision DEFAULT '0'::double precision NOT NULL,
    usd_reserved double precision DEFAULT '0'::double precision NOT NULL,
    unpriced bigint DEFAULT '0'::bigint NOT NULL,
    best double precision,
    best_low double precision,
    best_high double precision,
    evaluations_at_best bigint DEFAULT '0'::bigint NOT NULL,
    best_to_beat double precision,
    started_by text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    host text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    project text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C"
);
CREATE SEQUENCE run_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE run_id_seq OWNED BY run.id;
CREATE TABLE run_operator (
    run bigint NOT NULL,
    operator text NOT NULL COLLATE pg_catalog."C",
    proposals bigint DEFAULT '0'::bigint NOT NULL
);
CREATE TABLE schema_version (
    version bigint NOT NULL
);
CREATE SEQUENCE schema_version_version_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE schema_version_version_seq OWNED BY schema_version.version;
CREATE TABLE ticket (
    id bigint NOT NULL,
    run bigint NOT NULL,
    sequence bigint NOT NULL,
    operator text NOT NULL COLLATE pg_catalog."C",
    model text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    method text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    instance bigint,
    fidelity text COLLATE pg_catalog."C",
    again bigint DEFAULT '0'::bigint NOT NULL,
    tuning bigint DEFAULT '0'::bigint NOT NULL,
    tunings bigint DEFAULT '0'::bigint NOT NULL,
    note text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    failure text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    attempts bigint DEFAULT '0'::bigint NOT NULL,
    elapsed_s double precision DEFAULT '0'::double precision NOT NULL
);
CREATE SEQUENCE ticket_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE ticket_id_seq OWNED BY ticket.id;
CREATE TABLE ticket_parent (
    ticket bigint NOT NULL,
    role text NOT NULL COLLATE pg_catalog."C",
    "position" bigint NOT NULL,
    program bigint NOT NULL
);
CREATE TABLE visit (
    run bigint NOT NULL,
    program bigint NOT NULL,
    parent bigint,
    asked bigint DEFAULT '0'::bigint NOT NULL,
    told bigint DEFAULT '0'::bigint NOT NULL,
    failed bigint DEFAULT '0'::bigint NOT NULL,
    subtree bigint DEFAULT '0'::bigint NOT NULL,
    scored bigint DEFAULT '0'::bigint NOT NULL,
    value double precision DEFAULT '0'::double precision NOT NULL,
    best double precision,
    stale bigint DEFAULT '0'::bigint NOT NULL,
    own double precision,
    tuned bigint DEFAULT '0'::bigint NOT NULL,
    top double precision
);
CREATE TABLE writer (
    token text NOT NULL,
    number bigint NOT NULL,
    seen bigint NOT NULL
);
ALTER TABLE ONLY archive_offer ALTER COLUMN id SET DEFAULT nextval('archive_offer_id_seq'::regclass);
ALTER TABLE ONLY audit_log ALTER COLUMN id SET DEFAULT nextval('audit_log_id_seq'::regclass);
ALTER TABLE ONLY blob ALTER COLUMN id SET DEFAULT nextval('blob_id_seq'::regclass);
ALTER TABLE ONLY call ALTER COLUMN id SET DEFAULT nextval('call_id_seq'::regclass);
ALTER TABLE ONLY evaluation ALTER COLUMN id SET DEFAULT nextval('evaluation_id_seq'::regclass);
ALTER TABLE ONLY instance ALTER COLUMN id SET DEFAULT nextval('instance_id_seq'::regclass);
ALTER TABLE ONLY program ALTER COLUMN id SET DEFAULT nextval('program_id_seq'::regclass);
ALTER TABLE ONLY request ALTER COLUMN id SET DEFAULT nextval('request_id_seq'::regclass);
ALTER TABLE ONLY run ALTER COLUMN id SET DEFAULT nextval('run_id_seq'::regclass);
ALTER TABLE ONLY schema_version ALTER COLUMN version SET DEFAULT nextval('schema_version_version_seq'::regclass);
ALTER TABLE ONLY ticket ALTER COLUMN id SET DEFAULT nextval('ticket_id_seq'::regclass);
INSERT INTO archive_offer VALUES (1, 1, 1, 1, 1, 0.5353660793802402, 0.5253157435267387, 0.5453164102334083, 1, '{"depth":2.0,"vector":"none"}', 0, 0, 'tune', '[]', 2, 'place1', NULL, '{}');
INSERT INTO archive_offer VALUES (2, 1, 2, 2, 2, 0.6025777414033773, 0.5925274055498758, 0.6125280722565454, 1, '{"depth":2.0,"vector":"none"}', 1, 0, 'tune', '["a75bf5d1f4350ea46a98c811903c4bda551664e4453551cafeceb6d3869d8257"]', 2, 'place2', NULL, '{}');
INSERT INTO archive_offer VALUES (3, 1, 3, 3, 3, 0.019719149963825598, 0.009668814110324242, 0.029669480816993596, 1, '{"depth":2.0,"vector":"none"}', 2, 0, 'seed', '["a75bf5d1f4350ea46a98c811903c4bda551664e4453551cafeceb6d3869d8257"]', 2, 'place3', NULL, '{}');
INSERT INTO archive_offer VALUES (4, 1, 4, 4, 4, 0.4528256902162497, 0.44277535436274823, 0.46277602106941784, 1, '{"depth":2.0,"vector":"none"}', 3, 0, 'tune', '["b9560cf6ea2d8782795952d4808a64a738163673990fe4f6d3615d41dc3a72fa"]', 2, 'place0', NULL, '{}');
INSERT INTO archive_offer VALUES (5, 1, 5, 5, 5, 0.6520833675009369, 0.6420330316474354, 0.6620336983541049, 1, '{"depth":2.0,"vector":"none"}', 4, 0, 'tune', '["b9560cf6ea2d8782795952d4808a64a738163673990fe4f6d3615d41dc3a72fa"]', 1, 'place1', 1, '{}');
INSERT INTO archive_offer VALUES (6, 1, 6, 6, 6, 0.0751752073298121, 0.06512487147631058, 0.08512553818298027, 1, '{"depth":2.0,"vector":"none"}', 5, 0, 'seed', '["57aba8a6304a9266d4e121ebe760e5dbaca9e7a1f1a17fd624c875875bf823fb"]', 0, NULL, NULL, '{}');
INSERT INTO archive_offer VALUES (7, 1, 7, 7, 7, 0.3588146268110552, 0.3487642909575538, 0.3687649576642233, 1, '{"depth":2.0,"vector":"none"}', 6, 0, 'tune', '["57aba8a6304a9266d4e121ebe760e5dbaca9e7a1f1a17fd624c875875bf823fb"]', 1, 'place3', 3, '{}');
INSERT INTO archive_slot VALUES (1, 'place0', 4, 4);
INSERT INTO archive_slot VALUES (1, 'place1', 5, 5);
INSERT INTO archive_slot VALUES (1, 'place2', 2, 2);
INSERT INTO archive_slot VALUES (1, 'place3', 7, 7);
INSERT INTO arm VALUES (1, '', 'seed', '', 3, 0, 0, 0, 0.5, 0, 0);
INSERT INTO arm VALUES (1, '', 'tune', '', 5, 0, 0, 0, 1.25, 0, 0);
INSERT INTO audit_log VALUES (1, '2026-11-28T03:28:53+00:00', 'ada', 'lab1', 'upgraded', '', 'schema 6 to 7');
INSERT INTO audit_log VALUES (2, '2026-11-28T03:28:53+00:00', 'ada', 'lab1', 'quota', '', 'user ada: 20 USD and 7200 device seconds since 2026-11-01');
INSERT INTO audit_log VALUES (3, '2026-11-28T04:28:39+00:00', 'ada', 'lab1', 'copied', '', 'from searches.db');
INSERT INTO audit_log VALUES (4, '2026-11-28T07:47:24+00:00', 'ada', 'lab1', 'upgraded', '', 'schema 7 to 8');
INSERT INTO blob VALUES (1, '\x146b1afd56b22713a9c5b8259fb363d03fb3ff7c03ae609228cec2e1fcb81793', 'zlib', '\x789c458c510a02310c44afb2e4db13ec1df402ea47480729b64d695a1615ef6eea82fecdcc1bde8b5864e491b8472db452044007123618ade7eb8c1d376d0f871368ae3121ecac7086ef4d3773561b24daeee96c779f0c08d34392d86c396a403a615b97eaf552c81d169fd32175ccbf8e26dffaffffceef0fbbf339e3');
INSERT INTO blob VALUES (2, '\x6452247ef0ce02663b32a408cd46b0da0aa92a4585e3c729e1638a2616515cbe', 'raw', '\x424c4f434b203d20310a0a0a636c617373204d6f64656c4e65773a0a2020202073697a65203d20310a');
INSERT INTO blob VALUES (3, '\x5581fb9e39e52fd5e5301f3b4b0219dad7da90daa98064c08c5b835de857a678', 'raw', '\x7b22686f7374223a2268657265222c22746f726368223a22322e3133227d');
INSERT INTO blob VALUES (4, '\x75f28f6ca885c64f048bd002522557d32e932ae9db879e0ea72d8ba38f114665', 'zlib', '\x789cab56ca492c4a4f55b2aa564a4ecc4bc94c492c0172a28df40c740cf52c758cf48c7446003bb6b61600613235f9');
INSERT INTO blob VALUES (5, '\xf30523f552e4cb25e60eca82784548bda213400b4ae828370a3070739c7874e1', 'zlib', '\x789ccbcf4b55484e2c4ed55128cf2cc9c8cc5328c94855482a4d494f2dc91f7952000b61627b');
INSERT INTO blob VALUES (6, '\x090c474cd776508856701592b3b73c02cf694c50e5cd64b19690033409413d39', 'raw', '\x424c4f434b203d20320a0a0a636c617373204d6f64656c4e65773a0a2020202073697a65203d20320a');
INSERT INTO blob VALUES (7, '\xa5290397e56423e22cbe8c3699f2086ad10af4bbb89a4fa98041d2db0a836f83', 'raw', '\x424c4f434b203d20330a0a0a636c617373204d6f64656c4e65773a0a2020202073697a65203d20330a');
INSERT INTO blob VALUES (8, '\x82237fd0613b8450553616aa6ef8bf78afac233a89fcbe8440ac341a4375a6c1', 'raw', '\x424c4f434b203d20340a0a0a636c617373204d6f64656c4e65773a0a2020202073697a65203d20340a');
INSERT INTO blob VALUES (9, '\xb20d35d642261a48eb0a7b5694c09e6f8df6016323802a745382a76c51285d50', 'raw', '\x424c4f434b203d20350a0a0a636c617373204d6f64656c4e65773a0a2020202073697a65203d20350a');
INSERT INTO blob VALUES (10, '\x087b90acb5bc35886de1c5f196eda9066f5e0336b684b853c4d1b3c4908dc73d', 'raw', '\x424c4f434b203d20360a0a0a636c617373204d6f64656c4e65773a0a2020202073697a65203d20360a');
INSERT INTO blob VALUES (11, '\x252e69bf1a54512b464e5d34b59682a7e0de99c8afa1d9f3d16d50ca0dd48e80', 'raw', '\x424c4f434b203d20370a0a0a636c617373204d6f64656c4e65773a0a2020202073697a65203d20370a');
INSERT INTO blob VALUES (12, '\x383d7b5a8c55ca8a454d2f2e2d270b6035f501482084da4f362cf75a7e441462', 'raw', '\x4d616b65206974206661737465722e');
INSERT INTO blob VALUES (13, '\x5465f004f805d9e85bcf82f2b5171ba1539ccb804f15d7ab49213f0d08bd8a76', 'raw', '\x5772697465206b65726e656c732e');
INSERT INTO blob VALUES (14, '\xa511aeeeb8a119931a67038a63b7974faee48712de1c79391ebe2c9b929678e9', 'raw', '\x62656361757365');
INSERT INTO blob VALUES (15, '\xde7e92ed6423939bc0b6e4c2af8e21064a7657f2ec79e420e4bae8a6780f912b', 'zlib', '\x789c4b54284a2dc8a954481ca5c9a20143b27009');
INSERT INTO blob VALUES (16, '\x6bf1e633ab1e366a7b7ff343a375dc8bb17e9ce726daa77908cef87b062e26f7', 'raw', '\x424c4f434b203d2032300a0a0a636c617373204d6f64656c4e65773a0a2020202073697a65203d2032300a');
INSERT INTO call VALUES (1, 1, 'completed', 100, 0.5, 30, 0.01, 'one-2026', 'stop', '', '{"cached":null,"completion":20,"prompt":10,"reasoning":null}', 0.01, 1.5, 1, 0, 15, 14, NULL);
INSERT INTO call VALUES (2, 2, 'pending', 100, 0.5, NULL, NULL, '', '', '', NULL, NULL, 0, 0, 0, NULL, NULL, NULL);
INSERT INTO charge VALUES ('2026-11-28', 'ada', 'kernels', 12.5);
INSERT INTO evaluation VALUES (1, 1, 1, 'correct', 6, 'search', 'b891c5bb5c3f23dbd6697cad58852e97c1dcbcaad4d99d34fa11bc37ca11422b', 'cpu-test', '7', 1, NULL, '[{"name":"large","passed":true,"ratios":{"eager":[1.708073418273571,1.6909926840908354,1.7251541524563068],"elite":[1.0,0.99,1.01]},"timed":true,"times_ms":{"candidate":[2.0,1.9,2.2]},"weight":1.0}]', '[["plain_loop","line 3"]]', '{"depth":2.0,"vector":"none"}', '{"compile":1.5}', 0.25, 5, 3, 4);
INSERT INTO evaluation VALUES (2, 2, 2, 'correct', 6, 'search', 'b891c5bb5c3f23dbd6697cad58852e97c1dcbcaad4d99d34fa11bc37ca11422b', 'cpu-test', '7', 1, NULL, '[{"name":"large","passed":true,"ratios":{"eager":[1.826821810431806,1.8085535923274878,1.845090028536124],"elite":[1.0,0.99,1.01]},"timed":true,"times_ms":{"candidate":[2.0,1.9,2.2]},"weight":1.0}]', '[["plain_loop","line 3"]]', '{"depth":2.0,"vector":"none"}', '{"compile":1.5}', 0.25, 5, 3, 4);
INSERT INTO evaluation VALUES (3, 3, 3, 'correct', 6, 'search', 'b891c5bb5c3f23dbd6697cad58852e97c1dcbcaad4d99d34fa11bc37ca11422b', 'cpu-test', '7', 1, NULL, '[{"name":"large","passed":true,"ratios":{"eager":[1.019914856674817,1.009715708108069,1.0301140052415652],"elite":[1.0,0.99,1.01]},"timed":true,"times_ms":{"candidate":[2.0,1.9,2.2]},"weight":1.0}]', '[["plain_loop","line 3"]]', '{"depth":2.0,"vector":"none"}', '{"compile":1.5}', 0.25, 5, 3, 4);
INSERT INTO evaluation VALUES (4, 4, 4, 'correct', 6, 'search', 'b891c5bb5c3f23dbd6697cad58852e97c1dcbcaad4d99d34fa11bc37ca11422b', 'cpu-test', '7', 1, NULL, '[{"name":"large","passed":true,"ratios":{"eager":[1.5727500169043067,1.5570225167352636,1.5884775170733498],"elite":[1.0,0.99,1.01]},"timed":true,"times_ms":{"candidate":[2.0,1.9,2.2]},"weight":1.0}]', '[["plain_loop","line 3"]]', '{"depth":2.0,"vector":"none"}', '{"compile":1.5}', 0.25, 5, 3, 4);
INSERT INTO evaluation VALUES (5, 5, 5, 'correct', 6, 'search', 'b891c5bb5c3f23dbd6697cad58852e97c1dcbcaad4d99d34fa11bc37ca11422b', 'cpu-test', '7', 1, NULL, '[{"name":"large","passed":true,"ratios":{"eager":[1.9195357645382263,1.900340406892844,1.9387311221836085],"elite":[1.0,0.99,1.01]},"timed":true,"times_ms":{"candidate":[2.0,1.9,2.2]},"weight":1.0}]', '[["plain_loop","line 3"]]', '{"depth":2.0,"vector":"none"}', '{"compile":1.5}', 0.25, 5, 3, 4);
INSERT INTO evaluation VALUES (6, 6, 6, 'correct', 6, 'search', 'b891c5bb5c3f23dbd6697cad58852e97c1dcbcaad4d99d34fa11bc37ca11422b', 'cpu-test', '7', 1, NULL, '[{"name":"large","passed":true,"ratios":{"eager":[1.0780730206337539,1.0672922904274162,1.0888537508400915],"elite":[1.0,0.99,1.01]},"timed":true,"times_ms":{"candidate":[2.0,1.9,2.2]},"weight":1.0}]', '[["plain_loop","line 3"]]', '{"depth":2.0,"vector":"none"}', '{"compile":1.5}', 0.25, 5, 3, 4);
INSERT INTO evaluation VALUES (7, 7, 7, 'correct', 6, 'search', 'b891c5bb5c3f23dbd6697cad58852e97c1dcbcaad4d99d34fa11bc37ca11422b', 'cpu-test', '7', 1, NULL, '[{"name":"large","passed":true,"ratios":{"eager":[1.4316313908960832,1.4173150769871223,1.445947704805044],"elite":[1.0,0.99,1.01]},"timed":true,"times_ms":{"candidate":[2.0,1.9,2.2]},"weight":1.0}]', '[["plain_loop","line 3"]]', '{"depth":2.0,"vector":"none"}', '{"compile":1.5}', 0.25, 5, 3, 4);
INSERT INTO evaluation VALUES (8, 8, 8, 'correct', 6, 'search', 'b891c5bb5c3f23dbd6697cad58852e97c1dcbcaad4d99d34fa11bc37ca11422b', 'cpu-test', '7', 1, NULL, '[{"name":"large","passed":true,"ratios":{"eager":[2.5,2.475,2.525],"elite":[1.0,0.99,1.01]},"timed":true,"times_ms":{"candidate":[2.0,1.9,2.2]},"weight":1.0}]', '[["plain_loop","line 3"]]', '{"depth":2.0,"vector":"none"}', '{"compile":1.5}', 0.25, 5, 3, 4);
INSERT INTO evaluation_ratio VALUES (1, 'eager', 1.708073418273571, 1.6909926840908354, 1.7251541524563068);
INSERT INTO evaluation_ratio VALUES (1, 'elite', 1, 0.99, 1.01);
INSERT INTO evaluation_ratio VALUES (2, 'eager', 1.826821810431806, 1.8085535923274878, 1.845090028536124);
INSERT INTO evaluation_ratio VALUES (2, 'elite', 1, 0.99, 1.01);
INSERT INTO evaluation_ratio VALUES (3, 'eager', 1.019914856674817, 1.009715708108069, 1.0301140052415652);
INSERT INTO evaluation_ratio VALUES (3, 'elite', 1, 0.99, 1.01);
INSERT INTO evaluation_ratio VALUES (4, 'eager', 1.5727500169043067, 1.5570225167352636, 1.5884775170733498);
INSERT INTO evaluation_ratio VALUES (4, 'elite', 1, 0.99, 1.01);
INSERT INTO evaluation_ratio VALUES (5, 'eager', 1.9195357645382263, 1.900340406892844, 1.9387311221836085);
INSERT INTO evaluation_ratio VALUES (5, 'elite', 1, 0.99, 1.01);
INSERT INTO evaluation_ratio VALUES (6, 'eager', 1.0780730206337539, 1.0672922904274162, 1.0888537508400915);
INSERT INTO evaluation_ratio VALUES (6, 'elite', 1, 0.99, 1.01);
INSERT INTO evaluation_ratio VALUES (7, 'eager', 1.4316313908960832, 1.4173150769871223, 1.445947704805044);
INSERT INTO evaluation_ratio VALUES (7, 'elite', 1, 0.99, 1.01);
INSERT INTO evaluation_ratio VALUES (8, 'eager', 2.5, 2.475, 2.525);
INSERT INTO evaluation_ratio VALUES (8, 'elite', 1, 0.99, 1.01);
INSERT INTO instance VALUES (1, '\xcea24b1e23c688a2d093c9a97acca76991273df2aae3abe189a73a17f8bcf938', 1, '{}');
INSERT INTO instance VALUES (2, '\x379bfcf66996e2a2172cfc6439e225afedde568b15fcf24696616f05d1d0f474', 2, '{}');
INSERT INTO instance VALUES (3, '\x81309a2c966c36aa654378e94eb3835d80e36d0aed3c734d219c201c444edfbe', 3, '{}');
INSERT INTO instance VALUES (4, '\x30d697a3ad6b20f2e34d0d28e957ea6c9bb9f2f18ac7d38f59a0d3112a5fe005', 4, '{"BLOCK":32}');
INSERT INTO instance VALUES (5, '\x60e65eecfae50f901ba172214c7bfea5aa1b0111c25a153337b3263179353df1', 5, '{}');
INSERT INTO instance VALUES (6, '\x7e52ee903b8bdb9b1ac3e9a739ccf70fc35d288a7a4964eeabcda7d0ab77b9e8', 6, '{}');
INSERT INTO instance VALUES (7, '\xe1ac1a8015cc9400145db7c3856ff2215e380ec0b020da216b657f2d185dd945', 7, '{}');
INSERT INTO instance VALUES (8, '\x4e8516af02e77873f88c772ef8aff8ba5694a2f1728bbd191b58dd6204596275', 8, '{}');
INSERT INTO program VALUES (1, '\xa75bf5d1f4350ea46a98c811903c4bda551664e4453551cafeceb6d3869d8257', '\x2829b5445a2b78153c1c3fc9dc4ae47fcecee93c46f884effd21dff643cb89ad', 2, 'torch');
INSERT INTO program VALUES (2, '\xb9560cf6ea2d8782795952d4808a64a738163673990fe4f6d3615d41dc3a72fa', '\x2fa61ff2c4602b8d6480de2fed0acf322e7db2620e9f1836b92db39b1342f8bd', 6, 'torch');
INSERT INTO program VALUES (3, '\x57aba8a6304a9266d4e121ebe760e5dbaca9e7a1f1a17fd624c875875bf823fb', '\xd14363b13fcfa864c472b57545cde97ad457b695219442c60c964bdc81d009b2', 7, 'torch');
INSERT INTO program VALUES (4, '\x07d189ec770984a9b5d3f5679de883880073529626e4e42a8f00d40991ca9859', '\x6b003c2635e7317cd94caf9d0993c5add0f1eee455c13c77c17bea2222ff0229', 8, 'torch');
INSERT INTO program VALUES (5, '\x36eca381a6660ba998373886cd0813c3b44d90426062d07511258202adf7c608', '\xbe4df98e30866727b53d3531c84725f75a83cb223df28e5535113cb037e4547a', 9, 'torch');
INSERT INTO program VALUES (6, '\x9b2fd86edcf1c5dd801f98a38806be64daca7d348a025ab2af60729fad10ee8a', '\x1c46f7bc94c6c4d1e96c34921575ebd6f496e1536f14affc1cc4aca442a89e23', 10, 'torch');
INSERT INTO program VALUES (7, '\x061986ab65069f92fb75018ad41fa1d8d5ffec014282a09b0f83c7e8b56f99ab', '\x02a7c7eafb456011ca2c147e0fd510e3e330a8b9a053878f4eaa22953ff8e1a4', 11, 'torch');
INSERT INTO program VALUES (8, '\x86267f39626f0a3c2273360542ca40dc0a646661b51d87bfbe25b956436711af', '\xa9f82f4e6b87640f674868d4ac13fa1c19b59de994d1f1dfd6dd7d3f38c87f43', 16, 'torch');
INSERT INTO quota VALUES ('user', 'ada', 20, 7200, '2026-11-01');
INSERT INTO request VALUES (1, 1, 8, 0, 'write', 'propose', '\x32d87c468c977cae640c8f931ae0be0f877e11077e87e45d588f894b9d90d7a2', 0, '', '{"max_tokens":null,"reasoning_effort":null,"seed":null,"stop":[],"temperature":null,"top_p":null}', '{}', 'program', 0, 7, NULL);
INSERT INTO request VALUES (2, 1, 9, 0, 'write', 'propose', '\x32d87c468c977cae640c8f931ae0be0f877e11077e87e45d588f894b9d90d7a2', 1, '', '{"max_tokens":null,"reasoning_effort":null,"seed":null,"stop":[],"temperature":null,"top_p":null}', '{}', NULL, 0, 7, NULL);
INSERT INTO request_message VALUES (1, 0, 'system', 13);
INSERT INTO request_message VALUES (1, 1, 'user', 12);
INSERT INTO request_message VALUES (2, 0, 'system', 13);
INSERT INTO request_message VALUES (2, 1, 'user', 12);
INSERT INTO run VALUES (1, 'first', 1, '{}', 3, 'eager', 'running', '', '2026-11-28T00:19:05+00:00', 10, 9, 0, 8, 0, 2, 0, 2, 30, 100, 0.01, 0.5, 0, 2.5, 2.475, 2.525, 8, 2.525, 'ada', 'lab1', 'kernels');
INSERT INTO run_operator VALUES (1, 'seed', 3);
INSERT INTO run_operator VALUES (1, 'tune', 5);
INSERT INTO run_operator VALUES (1, 'write', 1);
INSERT INTO schema_version VALUES (8);
INSERT INTO ticket VALUES (1, 1, 0, 'tune', '', '', 'told', 1, 'search', 0, 0, 0, '', '', 1, 0);
INSERT INTO ticket VALUES (2, 1, 1, 'tune', '', '', 'told', 2, 'search', 0, 0, 0, '', '', 1, 0);
INSERT INTO ticket VALUES (3, 1, 2, 'seed', '', '', 'told', 3, 'search', 0, 0, 0, '', '', 1, 0);
INSERT INTO ticket VALUES (4, 1, 3, 'tune', '', '', 'told', 4, 'search', 0, 0, 0, '', '', 1, 0);
INSERT INTO ticket VALUES (5, 1, 4, 'tune', '', '', 'told', 5, 'search', 0, 0, 0, '', '', 1, 0);
INSERT INTO ticket VALUES (6, 1, 5, 'seed', '', '', 'told', 6, 'search', 0, 0, 0, '', '', 1, 0);
INSERT INTO ticket VALUES (7, 1, 6, 'tune', '', '', 'told', 7, 'search', 0, 0, 0, '', '', 1, 0);
INSERT INTO ticket VALUES (8, 1, 7, 'write', 'm/one', '', 'evaluated', 8, 'search', 0, 0, 0, 'from a model', '', 1, 0);
INSERT INTO ticket VALUES (9, 1, 8, 'write', 'm/one', '', 'asked', NULL, NULL, 0, 0, 0, '', '', 0, 0);
INSERT INTO ticket VALUES (10, 1, 9, 'seed', '', '', 'told', NULL, NULL, 0, 0, 0, '', 'no idea', 0, 0);
INSERT INTO ticket_parent VALUES (2, 'selected', 0, 1);
INSERT INTO ticket_parent VALUES (2, 'used', 0, 1);
INSERT INTO ticket_parent VALUES (3, 'selected', 0, 1);
INSERT INTO ticket_parent VALUES (3, 'used', 0, 1);
INSERT INTO ticket_parent VALUES (4, 'selected', 0, 2);
INSERT INTO ticket_parent VALUES (4, 'used', 0, 2);
INSERT INTO ticket_parent VALUES (5, 'selected', 0, 2);
INSERT INTO ticket_parent VALUES (5, 'used', 0, 2);
INSERT INTO ticket_parent VALUES (6, 'selected', 0, 3);
INSERT INTO ticket_parent VALUES (6, 'used', 0, 3);
INSERT INTO ticket_parent VALUES (7, 'selected', 0, 3);
INSERT INTO ticket_parent VALUES (7, 'used', 0, 3);
INSERT INTO ticket_parent VALUES (8, 'selected', 0, 1);
INSERT INTO ticket_parent VALUES (8, 'used', 0, 1);
INSERT INTO ticket_parent VALUES (9, 'selected', 0, 1);
INSERT INTO visit VALUES (1, 1, NULL, 4, 2, 0, 6, 6, 2.161195783225257, 0.6520833675009369, 2, 0.5353660793802402, 0, 0.6520833675009369);
INSERT INTO visit VALUES (1, 2, 1, 2, 2, 0, 2, 2, 1.1049090577171865, 0.6520833675009369, 0, 0.6025777414033773, 0, 0.6520833675009369);
INSERT INTO visit VALUES (1, 3, 1, 2, 2, 0, 2, 2, 0.4339898341408673, 0.3588146268110552, 0, 0.019719149963825598, 0, 0.3588146268110552);
INSERT INTO visit VALUES (1, 4, 2, 0, 0, 0, 0, 0, 0, NULL, 0, 0.4528256902162497, 0, 0.4528256902162497);
INSERT INTO visit VALUES (1, 5, 2, 0, 0, 0, 0, 0, 0, NULL, 0, 0.6520833675009369, 0, 0.6520833675009369);
INSERT INTO visit VALUES (1, 6, 3, 0, 0, 0, 0, 0, 0, NULL, 0, 0.0751752073298121, 0, 0.0751752073298121);
INSERT INTO visit VALUES (1, 7, 3, 0, 0, 0, 0, 0, 0, NULL, 0, 0.3588146268110552, 0, 0.3588146268110552);
SELECT pg_catalog.setval('archive_offer_id_seq', 7, true);
SELECT pg_catalog.setval('audit_log_id_seq', 4, true);
SELECT pg_catalog.setval('blob_id_seq', 16, true);
SELECT pg_catalog.setval('call_id_seq', 2, true);
SELECT pg_catalog.setval('evaluation_id_seq', 8, true);
SELECT pg_catalog.setval('instance_id_seq', 8, true);
SELECT pg_catalog.setval('program_id_seq', 8, true);
SELECT pg_catalog.setval('request_id_seq', 2, true);
SELECT pg_catalog.setval('run_id_seq', 1, true);
SELECT pg_catalog.setval('schema_version_version_seq', 1, false);
SELECT pg_catalog.setval('ticket_id_seq', 10, true);
ALTER TABLE ONLY archive_offer
    ADD CONSTRAINT archive_offer_pkey PRIMARY KEY (id);
ALTER TABLE ONLY archive_offer
    ADD CONSTRAINT archive_offer_ticket_key UNIQUE (ticket);
ALTER TABLE ONLY archive_slot
    ADD CONSTRAINT archive_slot_pkey PRIMARY KEY (run, slot);
ALTER TABLE ONLY arm
    ADD CONSTRAINT arm_pkey PRIMARY KEY (run, method, operator, model);
ALTER TABLE ONLY audit_log
    ADD CONSTRAINT audit_log_pkey PRIMARY KEY (id);
ALTER TABLE ONLY blob
    ADD CONSTRAINT blob_pkey PRIMARY KEY (id);
ALTER TABLE ONLY blob
    ADD CONSTRAINT blob_sha256_key UNIQUE (sha256);
ALTER TABLE ONLY call
    ADD CONSTRAINT call_pkey PRIMARY KEY (id);
ALTER TABLE ONLY charge
    ADD CONSTRAINT charge_pkey PRIMARY KEY (day, "user", project);
ALTER TABLE ONLY credit
    ADD CONSTRAINT credit_pkey PRIMARY KEY (ticket);
ALTER TABLE ONLY evaluation
    ADD CONSTRAINT evaluation_pkey PRIMARY KEY (id);
ALTER TABLE ONLY evaluation_ratio
    ADD CONSTRAINT evaluation_ratio_pkey PRIMARY KEY (evaluation, baseline);
ALTER TABLE ONLY evaluation
    ADD CONSTRAINT evaluation_ticket_key UNIQUE (ticket);
ALTER TABLE ONLY instance
    ADD CONSTRAINT instance_digest_key UNIQUE (digest);
ALTER TABLE ONLY instance
    ADD CONSTRAINT instance_pkey PRIMARY KEY (id);
ALTER TABLE ONLY lease
    ADD CONSTRAINT lease_pkey PRIMARY KEY (run);
ALTER TABLE ONLY program
    ADD CONSTRAINT program_digest_key UNIQUE (digest);
ALTER TABLE ONLY program
    ADD CONSTRAINT program_pkey PRIMARY KEY (id);
ALTER TABLE ONLY quota
    ADD CONSTRAINT quota_pkey PRIMARY KEY (kind, name);
ALTER TABLE ONLY request_message
    ADD CONSTRAINT request_message_pkey PRIMARY KEY (request, "position");
ALTER TABLE ONLY request
    ADD CONSTRAINT request_pkey PRIMARY KEY (id);
ALTER TABLE ONLY request
    ADD CONSTRAINT request_ticket_round_revision_key UNIQUE (ticket, round, revision);
ALTER TABLE ONLY run
    ADD CONSTRAINT run_name_key UNIQUE (name);
ALTER TABLE ONLY run_operator
    ADD CONSTRAINT run_operator_pkey PRIMARY KEY (run, operator);
ALTER TABLE ONLY run
    ADD CONSTRAINT run_pkey PRIMARY KEY (id);
ALTER TABLE ONLY schema_version
    ADD CONSTRAINT schema_version_pkey PRIMARY KEY (version);
ALTER TABLE ONLY ticket_parent
    ADD CONSTRAINT ticket_parent_pkey PRIMARY KEY (ticket, role, "position");
ALTER TABLE ONLY ticket
    ADD CONSTRAINT ticket_pkey PRIMARY KEY (id);
ALTER TABLE ONLY visit
    ADD CONSTRAINT visit_pkey PRIMARY KEY (run, program);
ALTER TABLE ONLY writer
    ADD CONSTRAINT writer_pkey PRIMARY KEY (token);
CREATE INDEX archive_offer_order ON archive_offer USING btree (run, id);
CREATE INDEX archive_offer_program ON archive_offer USING btree (run, program, id);
CREATE INDEX archive_slot_program ON archive_slot USING btree (run, program);
CREATE INDEX audit_log_run ON audit_log USING btree (run, id);
CREATE INDEX call_pending ON call USING btree (id) WHERE (status = 'pending'::text);
CREATE INDEX ix_call_request ON call USING btree (request);
CREATE INDEX ix_evaluation_instance ON evaluation USING btree (instance);
CREATE INDEX ix_instance_program ON instance USING btree (program);
CREATE INDEX ix_program_normalised ON program USING btree (normalised);
CREATE INDEX request_key ON request USING btree (run, key);
CREATE INDEX request_purpose ON request USING btree (run, operator, purpose, id);
CREATE INDEX ticket_instance ON ticket USING btree (run, instance);
CREATE INDEX ticket_open ON ticket USING btree (run, sequence) WHERE (state <> 'told'::text);
CREATE INDEX ticket_operator ON ticket USING btree (run, operator, sequence);
CREATE INDEX ticket_parent_program ON ticket_parent USING btree (program, ticket);
CREATE UNIQUE INDEX ticket_sequence ON ticket USING btree (run, sequence);
CREATE INDEX visit_top ON visit USING btree (run, parent, top);
CREATE TRIGGER audit_log_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON audit_log FOR EACH STATEMENT EXECUTE FUNCTION audit_log_refuse();
ALTER TABLE ONLY archive_offer
    ADD CONSTRAINT archive_offer_evicted_fkey FOREIGN KEY (evicted) REFERENCES program(id);
ALTER TABLE ONLY archive_offer
    ADD CONSTRAINT archive_offer_instance_fkey FOREIGN KEY (instance) REFERENCES instance(id);
ALTER TABLE ONLY archive_offer
    ADD CONSTRAINT archive_offer_program_fkey FOREIGN KEY (program) REFERENCES program(id);
ALTER TABLE ONLY archive_offer
    ADD CONSTRAINT archive_offer_run_fkey FOREIGN KEY (run) REFERENCES run(id);
ALTER TABLE ONLY archive_offer
    ADD CONSTRAINT archive_offer_ticket_fkey FOREIGN KEY (ticket) REFERENCES ticket(id);
ALTER TABLE ONLY archive_slot
    ADD CONSTRAINT archive_slot_offer_fkey FOREIGN KEY (offer) REFERENCES archive_offer(id);
ALTER TABLE ONLY archive_slot
    ADD CONSTRAINT archive_slot_program_fkey FOREIGN KEY (program) REFERENCES program(id);
ALTER TABLE ONLY archive_slot
    ADD CONSTRAINT archive_slot_run_fkey FOREIGN KEY (run) REFERENCES run(id);
ALTER TABLE ONLY arm
    ADD CONSTRAINT arm_run_fkey FOREIGN KEY (run) REFERENCES run(id);
ALTER TABLE ONLY call
    ADD CONSTRAINT call_reasoning_fkey FOREIGN KEY (reasoning) REFERENCES blob(id);
ALTER TABLE ONLY call
    ADD CONSTRAINT call_reply_fkey FOREIGN KEY (reply) REFERENCES blob(id);
ALTER TABLE ONLY call
    ADD CONSTRAINT call_request_fkey FOREIGN KEY (request) REFERENCES request(id);
ALTER TABLE ONLY call
    ADD CONSTRAINT call_trace_fkey FOREIGN KEY (trace) REFERENCES blob(id);
ALTER TABLE ONLY credit
    ADD CONSTRAINT credit_ticket_fkey FOREIGN KEY (ticket) REFERENCES ticket(id);
ALTER TABLE ONLY evaluation
    ADD CONSTRAINT evaluation_environment_fkey FOREIGN KEY (environment) REFERENCES blob(id);
ALTER TABLE ONLY evaluation
    ADD CONSTRAINT evaluation_feedback_fkey FOREIGN KEY (feedback) REFERENCES blob(id);
ALTER TABLE ONLY evaluation
    ADD CONSTRAINT evaluation_instance_fkey FOREIGN KEY (instance) REFERENCES instance(id);
ALTER TABLE ONLY evaluation_ratio
    ADD CONSTRAINT evaluation_ratio_evaluation_fkey FOREIGN KEY (evaluation) REFERENCES evaluation(id);
ALTER TABLE ONLY evaluation
    ADD CONSTRAINT evaluation_samples_fkey FOREIGN KEY (samples) REFERENCES blob(id);
ALTER TABLE ONLY evaluation
    ADD CONSTRAINT evaluation_ticket_fkey FOREIGN KEY (ticket) REFERENCES ticket(id);
ALTER TABLE ONLY instance
    ADD CONSTRAINT instance_program_fkey FOREIGN KEY (program) REFERENCES program(id);
ALTER TABLE ONLY lease
    ADD CONSTRAINT lease_run_fkey FOREIGN KEY (run) REFERENCES run(id);
ALTER TABLE ONLY program
    ADD CONSTRAINT program_source_fkey FOREIGN KEY (source) REFERENCES blob(id);
ALTER TABLE ONLY request_message
    ADD CONSTRAINT request_message_content_fkey FOREIGN KEY (content) REFERENCES blob(id);
ALTER TABLE ONLY request_message
    ADD CONSTRAINT request_message_request_fkey FOREIGN KEY (request) REFERENCES request(id);
ALTER TABLE ONLY request
    ADD CONSTRAINT request_run_fkey FOREIGN KEY (run) REFERENCES run(id);
ALTER TABLE ONLY request
    ADD CONSTRAINT request_ticket_fkey FOREIGN KEY (ticket) REFERENCES ticket(id);
ALTER TABLE ONLY run_operator
    ADD CONSTRAINT run_operator_run_fkey FOREIGN KEY (run) REFERENCES run(id);
ALTER TABLE ONLY run
    ADD CONSTRAINT run_task_fkey FOREIGN KEY (task) REFERENCES blob(id);
ALTER TABLE ONLY ticket
    ADD CONSTRAINT ticket_instance_fkey FOREIGN KEY (instance) REFERENCES instance(id);
ALTER TABLE ONLY ticket_parent
    ADD CONSTRAINT ticket_parent_program_fkey FOREIGN KEY (program) REFERENCES program(id);
ALTER TABLE ONLY ticket_parent
    ADD CONSTRAINT ticket_parent_ticket_fkey FOREIGN KEY (ticket) REFERENCES ticket(id);
ALTER TABLE ONLY ticket
    ADD CONSTRAINT ticket_run_fkey FOREIGN KEY (run) REFERENCES run(id);
ALTER TABLE ONLY visit
    ADD CONSTRAINT visit_parent_fkey FOREIGN KEY (parent) REFERENCES program(id);
ALTER TABLE ONLY visit
    ADD CONSTRAINT visit_program_fkey FOREIGN KEY (program) REFERENCES program(id);
ALTER TABLE ONLY visit
    ADD CONSTRAINT visit_run_fkey FOREIGN KEY (run) REFERENCES run(id);
