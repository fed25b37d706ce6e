// Reads the files of API keys and tenants anew while the router runs.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "services/router/api/edge.h"
#include "services/shell/loop.h"

namespace skein::services {

class KeyReload {
 public:
  // `edge` outlives it. If requests need a key, the files are looked at every `every_s` seconds; 0:
  // only Reload reads them.
  KeyReload(Edge* edge, double every_s);

  // Reads the files as they are now; a bad file changes nothing. Any thread.
  absl::Status Reload();

 private:
  void Watch();

  Edge* const edge_;
  const int64_t every_us_;
  int64_t next_look_us_ = INT64_MAX;
  Loop watch_{1};  // last: its thread uses the above
};

}  // namespace skein::services
