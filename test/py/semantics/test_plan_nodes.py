"""src/notify/sender/retarget.c handles every plan node of the server, and every field of a node that has expressions.

The list of nodes comes from the server's own header. A node or field that is new in a version fails the test by its
name; then retarget.c must handle it, or NODES must list it as one that cannot contain a volatile function call.
"""

import re

import pytest

from c_api import include_folder
from harness.installation import find_installation
from harness.prefix import TOP
from support import hear, one

pytestmark = pytest.mark.seam

WALKED_IN = ("src/notify/sender/retarget.c", "src/base/compat.h")

# Each node, with its fields that point to nodes. retarget.c walks them, except those with a minus:
#   lists of numbers, names or ranges, target lists that only describe a tuple, and data private to another module;
#   clauses for indexes, hashes, merges, tids, run conditions, pruning and memoizing: the planner puts nothing volatile there;
#   the further grouping sets of an Agg, whose expressions are those of the Agg.
NODES = """
PlannedStmt: planTree subplans -appendRelations -elidedNodes -extension_state -invalItems -paramExecTypes
    -partPruneInfos -permInfos -relationOids -resultRelations -rowMarks -rtable -subrtinfos -utilityStmt
Plan: targetlist qual initPlan lefttree righttree
Agg: -chain -groupingSets
Append: appendplans -child_append_relid_sets -part_prune_info
BitmapAnd: -bitmapplans
BitmapHeapScan: -bitmapqualorig
BitmapIndexScan: -indexqual -indexqualorig
BitmapOr: -bitmapplans
CteScan:
CustomScan: custom_exprs custom_plans -custom_private -custom_scan_tlist -methods
ForeignScan: fdw_exprs fdw_recheck_quals -fdw_private -fdw_scan_tlist
FunctionScan: functions
Gather:
GatherMerge:
Group:
Hash: -hashkeys
HashJoin: -hashclauses -hashcollations -hashkeys -hashoperators
IncrementalSort:
IndexOnlyScan: -indexorderby -indexqual -indextlist -recheckqual
IndexScan: -indexorderby -indexorderbyops -indexorderbyorig -indexqual -indexqualorig
Join: joinqual
Limit: limitCount limitOffset
LockRows: -rowMarks
Material:
Memoize: -param_exprs
MergeAppend: mergeplans -child_append_relid_sets -part_prune_info
MergeJoin: -mergeclauses
ModifyTable: mergeActionLists mergeJoinConditions onConflictSet onConflictWhere returningLists withCheckOptionLists
    -arbiterIndexes -exclRelTlist -fdwPrivLists -onConflictCols -resultRelations -rowMarks -updateColnosLists
NamedTuplestoreScan:
NestLoop: -nestParams
ProjectSet:
RecursiveUnion:
Result: resconstantqual
SampleScan: tablesample
Scan:
SeqScan:
SetOp:
Sort:
SubqueryScan: subplan
TableFuncScan: tablefunc
TidRangeScan: -tidrangequals
TidScan: -tidquals
Unique:
ValuesScan: values_lists
WindowAgg: endOffset startOffset -runCondition -runConditionOrig
WorkTableScan:
"""

STRUCT = re.compile(r"^typedef struct (?P<name>\w+)\s*\{(?P<fields>.*?)^\}\s*(?P=name)\s*;", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
ATTRIBUTES = re.compile(r"\bpg_node_attr\((?:[^()]|\([^()]*\))*\)")
# A pointer to a structure or a list; not to numbers, names or sets of numbers.
POINTER = re.compile(r"(?:const )?(?:struct )?(?P<type>[A-Z]\w*) \*\s*(?P<name>\w+)$")
NO_NODES = {"AttrNumber", "Oid", "Bitmapset"}


def known() -> dict[str, dict[str, bool]]:
    """NODES as a dict: node, field, and whether retarget.c walks the field."""
    lines = re.sub(r"\n +", " ", NODES).strip().splitlines()
    return {name: {field.lstrip("-"): not field.startswith("-") for field in fields.split()}
            for name, fields in (line.split(":") for line in lines)}


def of_server(header: str) -> dict[str, set[str]]:
    """The plan nodes in the text of plannodes.h, and PlannedStmt, with their fields that point to nodes."""
    structs = {}
    for match in STRUCT.finditer(ATTRIBUTES.sub("", COMMENT.sub("", header))):
        structs[match["name"]] = [" ".join(field.split()) for field in match["fields"].split(";") if field.strip()]
    plans, before = {"Plan"}, set()
    while plans != before:  # the first field of a node is its base node
        before = set(plans)
        plans |= {name for name, fields in structs.items() if fields and fields[0].split()[0] in before}
    return {name: {match["name"] for field in structs[name]
                   if (match := POINTER.match(field)) and match["type"] not in NO_NODES}
            for name in plans | {"PlannedStmt"}}


@pytest.fixture(scope="module")
def header() -> str:
    """The server's plannodes.h."""
    return (include_folder(find_installation().pg_config) / "nodes/plannodes.h").read_text()


def unknown(header: str) -> list[str]:
    """Nodes and fields that are in the header and not in NODES."""
    ours, found = known(), []
    for name, fields in of_server(header).items():
        found += [name] if name not in ours else [f"{name}.{field}" for field in fields - ours[name].keys()]
    return sorted(found)


def test_the_server_has_no_other_nodes(header):
    """Guards: the header has no node and no field that NODES does not list."""
    assert len(of_server(header)) > 40
    assert unknown(header) == []


def test_a_new_node_would_be_found(header):
    """Guards: the test above fails if there is a new node or a new field."""
    assert unknown(header + "\ntypedef struct NewScan\n{\n\tScan scan;\n\tList *exprs;\n} NewScan;\n") == ["NewScan"]
    with_field = re.sub(r"(typedef struct Limit\n\{\s*(?:pg_node_attr.*\n)?)(.*?)(\n\} Limit;)",
                        r"\1\2\n\tNode *limitStep;\n\3", header, flags=re.DOTALL)
    assert unknown(with_field) == ["Limit.limitStep"]


def test_what_is_walked():
    """Guards: the source refers to each field that NODES lists as walked."""
    source = "".join(COMMENT.sub("", (TOP / name).read_text()) for name in WALKED_IN)
    missing = [f"{name}.{field}" for name, fields in known().items() for field, walked in fields.items()
               if walked and not re.search(rf"->{field}\b", source)]
    assert missing == []


def test_condition_of_merge(cluster, connect):
    """Guards: pg_notify() in a MERGE condition, which is checked again for NOT MATCHED BY SOURCE (from 17 on)."""
    session = connect(cluster)
    taken = "SELECT notifications FROM herald.stats"
    session.execute("CREATE TEMPORARY TABLE target AS SELECT 1 AS id")
    session.execute("CREATE TEMPORARY TABLE source AS SELECT 1 AS id")
    session.execute("LISTEN merged")
    before = one(session, taken)
    by_source = " WHEN NOT MATCHED BY SOURCE THEN DELETE" if session.info.server_version >= 170000 else ""
    session.execute("MERGE INTO target t USING source s ON t.id = s.id AND pg_notify('merged', 'once') IS NOT NULL"
                    f" WHEN MATCHED THEN UPDATE SET id = 2{by_source}")
    assert hear(session, 1) == ["once"]
    assert one(session, taken) == before + 1
