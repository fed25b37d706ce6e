// The version that --version, /version, the logs and the registry report.
#pragma once

#include <string>

namespace skein::services {

inline constexpr char kVersion[] = "0.2.0";

// "skein router 0.2.0 (commit 1eb2c48a90c1, optimized, gcc 12.2.0)". Without --stamp, which
// --config=opt sets, a build does not know its commit.
std::string VersionText(const std::string& program);

}  // namespace skein::services
