// What every span of a worker says.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "scheduler/base/ids.h"
#include "services/tracing/span.h"

namespace skein::services {

// `instance`: the id that the orchestrator gave; 0: none, and not said.
inline std::vector<SpanAttribute> AttributesOf(RequestId id, std::string_view role,
                                               uint64_t instance) {
  std::vector<SpanAttribute> attributes = {{"skein.request_id", ToString(id)},
                                           {"skein.role", role}};
  if (instance != 0) {
    attributes.emplace_back("skein.instance", static_cast<int64_t>(instance));
  }
  return attributes;
}

}  // namespace skein::services
