// The version that /version, the logs and the registry report.
#pragma once

namespace skein::services {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace skein::services
