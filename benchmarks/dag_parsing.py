"""What a DAG file with our operators costs at every parse. ``./dev bench dag_parsing``.

a. Importing the operators, in a process that has ``airflow.sdk``, as every DAG processor has; sensors, triggers and assets too; and
   SparkSubmitOperator for comparison.
b. A DAG of a thousand operators with three arguments each, against a thousand BashOperators: making it, and serialising it as the
   DAG processor does. Airflow's cost grows with template fields and outlets. Our operators have three templated arguments and
   one outlet here, BashOperator has two and none; "… with an outlet" is a BashOperator with three and one.

The processor seconds (``cpu s``) are what counts: a DAG processor parses every file again and again.
"""

from __future__ import annotations

import argparse

from side_by_side import Case, Contender, run_cases

_MODULE = "dag_parsing_contenders"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Parsing of DAG files, side by side")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tasks", type=int, default=1000)
    given = parser.parse_args(arguments)
    imports = tuple(
        Contender(name, f"{_MODULE}:import_{function}", peer=name == "BashOperator")
        for name, function in (
            ("our operators", "operators"),
            ("our sensors, triggers", "sensors"),
            ("SparkSubmitOperator", "spark_submit"),
            ("BashOperator", "bash"),
        )
    )
    cases = [Case("a import, above airflow.sdk", imports, same_facts=False)]
    for what in ("made", "serialized"):
        contenders = (
            Contender("DeltaOptimizeOperator", f"{_MODULE}:{what}_optimize"),
            Contender("BashOperator", f"{_MODULE}:{what}_bash", peer=True),
            Contender("… with an outlet", f"{_MODULE}:{what}_bash_with_outlet"),
        )
        cases.append(Case(f"b {given.tasks} operators, {what}", contenders, (given.tasks,)))
    run_cases(cases, given.rounds)


if __name__ == "__main__":
    main()
