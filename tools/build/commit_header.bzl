"""commit_header: a C++ header with the commit that is built, from tools/build/workspace_status."""

def _commit_header_impl(ctx):
    out = ctx.outputs.out
    ctx.actions.run_shell(
        inputs = [ctx.info_file] if ctx.attr.stamped else [],
        outputs = [out],
        command = "commit=$(sed -n 's/^STABLE_SKEIN_COMMIT //p' %s); " % (ctx.info_file.path if ctx.attr.stamped else "/dev/null") +
                  "printf '#pragma once\\n\\nnamespace skein::services {\\ninline constexpr char kBuildCommit[] = \"%%s\";\\n}\\n' \"$commit\" > %s" % out.path,
        mnemonic = "CommitHeader",
    )
    return [DefaultInfo(files = depset([out]))]

commit_header = rule(
    implementation = _commit_header_impl,
    attrs = {
        "out": attr.output(mandatory = True),
        "stamped": attr.bool(mandatory = True),
    },
)
