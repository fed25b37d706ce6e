#include "services/base/version.h"

#include "services/base/build_commit.h"

namespace skein::services {
namespace {

std::string Build() {
  std::string build = kBuildCommit[0] == '\0' ? "" : std::string("commit ") + kBuildCommit + ", ";
#ifdef __OPTIMIZE__
  build += "optimized";
#else
  build += "not optimized";
#endif
#ifdef SKEIN_CUDA
  build += ", CUDA";
#endif
#ifdef __clang__
  return build + ", clang " + __clang_version__;
#else
  return build + ", gcc " + __VERSION__;
#endif
}

}  // namespace

std::string VersionText(const std::string& program) {
  const bool named = program.rfind("skein", 0) == 0;
  const std::string name = named ? program : program.empty() ? "skein" : "skein " + program;
  return name + " " + kVersion + " (" + Build() + ")";
}

}  // namespace skein::services
