"""Known vulnerabilities of what is in the image: `make audit`.

Exit status 0: every package was looked up and none is known to be vulnerable. 1: some are; each is named. 3: the advisories of some or all packages could not
be read, so nothing is said of those. pip-audit by itself ends with 1 for both.
"""

import json
import subprocess
import sys

VULNERABLE, NOT_ASKED = 1, 3


def main(command: list[str]) -> int:
    done = subprocess.run(
        [*command, "--format", "json", "--progress-spinner", "off"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        print(done.stderr, end="", file=sys.stderr)
        print(
            "Not audited: pip-audit got no advisories (its words are above). This needs PyPI itself, not a mirror of it.",
            file=sys.stderr,
        )
        return NOT_ASKED
    vulnerable = [(p, v) for p in packages for v in p.get("vulns", ())]
    for package, vulnerability in vulnerable:
        versions = ", ".join(vulnerability["fix_versions"]) or "no version yet"
        print(f"{package['name']} {package['version']}: {vulnerability['id']}, mended in {versions}")
    skipped = [p for p in packages if "skip_reason" in p]
    if skipped:
        print(f"Not audited: {len(skipped)} of {len(packages)} packages, such as {skipped[0]['skip_reason']}", file=sys.stderr)
        print("This needs the advisories that PyPI answers for NAME/VERSION/json; mirrors often lack them.", file=sys.stderr)
    if vulnerable:
        return VULNERABLE
    if skipped or not packages:
        return NOT_ASKED
    print(f"{len(packages)} packages, none known to be vulnerable")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
