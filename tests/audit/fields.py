"""Every field of everything that a run leaves behind, and the reasons why some of them are functions of noisy answers.

Addresses are those of `outcomes.py`: file, colon, place in it. `*` stands for any part, and OPEN for the columns of
which the schema of a run leaves something to be estimated. `[#]` is the length of a list. What is not listed is an
error, so a new file or field is looked at by whoever adds it: can its value follow from anything but noisy answers and
public facts?
"""

DIGEST = "the checksum of a file that holds noisy answers"
MODEL = "fitted to noisy answers"
SAMPLED = "drawn from the model"
ESTIMATED = "cut from a noisy histogram"
LISTED = "estimated privately from noisy counts of values, as the schema leaves the list open"
BOUNDED = "estimated privately from a noisy histogram, as the schema leaves the bounds open"
NUM_ROWS = "a noisy count, or the declared number, which the comparison of another case shows"
TRAINED = "trained on noisy sums of gradients, or computed from noisy moments"

NOISE: dict[str, str] = {
    # release.json
    "*release.json:codec.num_rows": NUM_ROWS,
    "*release.json:codec.rows_per_unit[]": "fractions of a noisy histogram",
    "*release.json:codec.columns[OPEN].categories[*": LISTED,
    "*release.json:codec.columns[OPEN].default": f"the place of 'other': {LISTED}",
    "*release.json:codec.columns[OPEN].lower": BOUNDED,
    "*release.json:codec.columns[OPEN].upper": BOUNDED,
    "*release.json:codec.unlisted[*": LISTED,
    "*release.json:codec.columns[*].firsts[*": ESTIMATED,
    "*release.json:codec.columns[*].masses[*": ESTIMATED,
    "*release.json:codec.columns[*].first_fine_bin[*": ESTIMATED,
    "*release.json:model.structure.num_rows": NUM_ROWS,
    "*release.json:model.structure.total": NUM_ROWS,
    "*release.json:model.structure.sizes[]": f"the number of bins or categories: {ESTIMATED}",
    "*release.json:model.structure.tree.*": "the order of elimination follows from the sizes of the columns",
    "*release.json:sha256.*": DIGEST,
    "*release.json:sha256_above": DIGEST,
    # the arrays of the model
    "*model.safetensors:[*].shape": f"the number of bins or categories: {ESTIMATED}",
    "*model.safetensors:[*].data": MODEL,
    # certificates
    "*certificate.json:estimated[]": "says what was estimated",
    "*certificate.json:checksums.*": DIGEST,
    "*certificate.json:measured_marginals[].cells": f"the number of bins or categories: {ESTIMATED}",
    # what a failed run keeps: its checkpoint, which is private
    "*.checkpoint/run.json:tables.table": "a hash of the table, by a key that is in the same private folder",
    # tables
    "*.csv:rows[]": SAMPLED,
    "*.parquet:rows[]": SAMPLED,
    "*.parquet:metadata.understudy.release": DIGEST,
    "*.datapackage.json:release.sha256": DIGEST,
    "*.datapackage.json:resources[*].bytes": SAMPLED,
    "*.datapackage.json:resources[*].hash": DIGEST,
    "*.datapackage.json:resources[*].schema.fields[OPEN].constraints.*": f"{LISTED}; {BOUNDED}",
    "*.parquet.certificate.json:release.sha256": DIGEST,
    "*.parquet.certificate.json:table.sha256": DIGEST,
    "edges.csv:rows[#]": "the noisy number of edges",
    "edges.csv.datapackage.json:resources[*].rows": "the noisy number of edges",
    "*edges.csv.certificate.json:release.sha256": DIGEST,
    "*edges.csv.certificate.json:table.sha256": DIGEST,
    "*edges.csv.certificate.json:table.rows": "the noisy number of edges",
    # bundles
    "*.zip:SHA256SUMS:line": DIGEST,
    "*.zip:manifest.json:files.*.sha256": DIGEST,
    "*.zip:manifest.json:files.*.bytes": "the length of a file that holds noisy numbers",
    "*.zip:manifest.json:release.sha256": DIGEST,
    "*.zip:manifest.json:tables[*].bytes": SAMPLED,
    "*.zip:manifest.json:tables[*].sha256": DIGEST,
    # budget books
    "*.book:entries[].hashes": "over the checksum of the certificate",
    "*.book:entries[].content.certificate": DIGEST,
    # objects of Python
    "learner:model.*": TRAINED,
    "learner:arrays.*": TRAINED,
    "learner:attribute_coef_*": TRAINED,
    "learner:attribute_intercept_*": TRAINED,
    "learner:certificate.estimated[]": "says what was estimated",
    "boost:weights.data": "from noisy selections",
    "boost:mixture.data": "from noisy selections",
    "boost:rejected_weights.data": "from noisy selections",
    "boost:rows.data": SAMPLED,
}
"""Field: why it may differ between neighbours."""

WORDS: dict[str, tuple[str, str]] = {
    r"\b[0-9a-f]{64}\b": ("HASH", DIGEST),
    r"\b[\d.]+% of the model's rows satisfy": ("N% of the model's rows satisfy", "rows of the model are counted"),
    r"(values kept: .*?)(\.|$)": (r"values kept\2", LISTED),
    r"(dates were estimated privately: ).*?(\. Values outside|$)": (r"\1ends\2", ESTIMATED),
    r"(Values in fewer than about )[\d,]+ rows": (r"\1N rows", "a threshold, by the noisy number of rows"),
    r"[\d,]+ synthetic edges": ("N synthetic edges", "the noisy number of edges"),
    r"(\| (?:`[^`|]*`(?:, )?)+ \| )[\d,]+( \|)": (r"\1N\2", f"cells of a marginal: {ESTIMATED}"),
    r'("cells": )[\d,]+': (r"\1N", f"the same in JSON: {ESTIMATED}"),
    r'^<td class="n">[\d,]+</td>$': ("a whole number", f"among others, cells of a marginal: {ESTIMATED}"),
    r"of [\d,]+ units?\b": ("of N units", SAMPLED),
}
"""Parts of lines for people that differ: pattern, what stands for it in the comparison, and why it may differ."""

_CERTIFICATE = """
    format format_version understudy_version date private seeded released conditions[*] warnings[*] method
    checksums{}
    guarantee.accountant guarantee.adjacency guarantee.delta guarantee.epsilon guarantee.epsilon_pld
    guarantee.epsilon_rdp guarantee.epsilon_target guarantee.strength guarantee.replace_one.delta
    guarantee.replace_one.epsilon guarantee.unit.column guarantee.unit.graph guarantee.unit.max_rows guarantee.meaning
    guarantee.meaning.posteriors[#] guarantee.meaning.posteriors[].exceeded_with_probability
    guarantee.meaning.posteriors[].largest_posterior guarantee.meaning.posteriors[].prior
    guarantee.meaning.true_positive_rates[#] guarantee.meaning.true_positive_rates[].false_positive_rate
    guarantee.meaning.true_positive_rates[].largest_true_positive_rate
    public.contact public.declared[*] public.kinds_drafted public.name public.responsible public.rows
    public.rows_kept_in public.storage_types_kept public.table_rows public.selections_only
    book.dataset book.entry book.hash estimated[#] accuracy[*] not_covered[*]
    queries[#] queries[].columns[*] queries[].delta queries[].event.* queries[].key queries[].partition
    queries[].path[*] queries[].standalone_epsilon queries[].tail_delta queries[].what
    measured_marginals[#] measured_marginals[].cells measured_marginals[].columns[*] measured_marginals[].partition
    measured_marginals[].query measured_marginals[].stddev
    audit audit.audits_together audit.canary audit.claimed_delta audit.claimed_epsilon audit.command audit.confidence
    audit.date audit.epsilon_at_least audit.epsilon_attainable audit.method audit.runs audit.threat audit.version
"""
PUBLIC: dict[str, str] = {
    "*certificate.json": _CERTIFICATE,
    "learner:certificate": _CERTIFICATE,
    "*release.json": """
        format format_version understudy_version made_with.* private method origin.library
        origin.columns.*.arrow origin.columns.*.style.*
        codec.columns[#] codec.columns[*].categories[*] codec.columns[*].default codec.columns[*].kind
        codec.columns[*].lower codec.columns[*].name codec.columns[*].nullable codec.columns[*].decimals
        codec.columns[*].type codec.columns[*].upper codec.columns[*].equal codec.rows_per_unit[#]
        codec.schema.columns[#] codec.schema.columns[*].bounds[*] codec.schema.columns[*].categories[*]
        codec.schema.columns[*].closed codec.schema.columns[*].kind codec.schema.columns[*].name
        codec.schema.columns[*].nullable codec.schema.columns[*].per_unit codec.schema.columns[*].decimals
        codec.schema.max_rows_per_unit codec.schema.rules[#]
        codec.schema.rules[].keep codec.schema.rules[].when codec.schema.rules[].then
        codec.schema.rules[].combinations[*] codec.schema.rules[].forbidden[* codec.schema.rules[].on_break
        model.structure.zeros[* codec.schema.unit codec.schema.rows
        model.kind model.structure.names[*] model.structure.cliques[* model.structure.sizes[#] model.structure.target
        model.structure.blocks[* model.structure.decoder[*] model.structure.widths[*] model.structure.network*
        model.structure.latent model.structure.num_generators
        schema.nodes.list[*] schema.graph.*
    """,
    "*model.safetensors": "metadata{} [*].type",
    "*CERTIFICATE.md": "line",
    "*.html": "line",
    "*.csv": "head rows[#]",
    "*.parquet": "types written_by rows[#] metadata.understudy.certificate metadata.understudy.synthetic",
    "*.datapackage.json": """
        $schema certificate description name resources[#] resources[*].dialect.delimiter resources[*].encoding
        resources[*].format resources[*].name resources[*].path resources[*].rows resources[*].schema.fields[#]
        resources[*].schema.fields[*].constraints.* resources[*].schema.fields[*].name
        resources[*].schema.fields[*].type resources[*].schema.missingValues[*] synthetic title understudy_version
    """,
    "*.parquet.certificate.json": """
        dataset release.date release.folder release.method table.file table.rows table.where
    """,
    "*.zip": "comment members",
    "*.zip:README.md": "line",
    "*.zip:schema.toml": "line",
    "*.zip:audit.json": "format format_version note audits[#] audits[].*",
    "*.zip:manifest.json": """
        format format_version understudy_version in_house marks[*] private signed release.book.* release.dataset
        release.date release.delta release.epsilon release.method tables[#] tables[*].included tables[*].name
    """,
    "*.zip:plan.json": """
        format format_version understudy_version delta epsilon epsilon_target expected[*] notes[*] private seeded
        meaning.* queries[#] queries[].columns[*] queries[].delta queries[].event.* queries[].key queries[].partition
        queries[].path[*] queries[].standalone_epsilon queries[].tail_delta queries[].what
    """,
    "*.zip:versions.json": "bundle.* release.*",
    "*.book": """
        pages tables entries[].number entries[].content.by entries[].content.composition entries[].content.cost.*
        entries[].content.dataset entries[].content.delta entries[].content.epsilon entries[].content.kind
        entries[].content.limit.* entries[].content.method entries[].content.nonce entries[].content.number
        entries[].content.order entries[].content.outcome entries[].content.plan entries[].content.reservation
        entries[].content.time entries[].content.total.* entries[].content.understudy_version entries[].content.unit
    """,
    "temporary": "",
    "*.checkpoint/run.json": "format format_version secret check facts.*",
    "*.checkpoint/book.json": "dataset number digest",
    "*.checkpoint/spent.txt": "line",
    "learner": """
        learner codec.* attribute_classes_.* attribute_input_names_[*] attribute_n_features_in_ attribute_spent_
        attribute_feature_names_in_.*
    """,
    "boost": "weights.shape weights.type mixture.shape mixture.type rejected_weights.shape rejected_weights.type "
    "rows.shape rows.type notes[*]",
}
"""File: its fields that follow from public facts alone."""

STREAMS = ("output", "errors", "log", "exit code", "warning", "error")
"""What each command and each call has, whatever its name."""
