// Which roles may make which call, where callers have certificates (--mtls).
#pragma once

#include <string_view>

#include "services/tls/roles.h"

namespace skein::services {

// `method` as in HTTP/2's :path, "/skein.v1.Orchestrator/Drain". Nobody may make a call that is not
// listed here; the health service is for all.
tls::RoleSet MayCall(std::string_view method);

}  // namespace skein::services
