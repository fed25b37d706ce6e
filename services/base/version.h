// The version shown by --version, /version, the logs and the registry.
#pragma once

#include <string>

namespace skein::services {

inline constexpr char kVersion[] = "0.4.0";

// "skein router 0.4.0 (commit 1eb2c48a90c1, optimized, gcc 12.2.0)". The commit is known only with
// --stamp, which --config=opt sets.
std::string VersionText(const std::string& program);

}  // namespace skein::services
