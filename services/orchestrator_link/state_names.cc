#include "services/orchestrator_link/state_names.h"

namespace skein::services {

const char* RoleName(v1::Role role) {
  return role == v1::ROLE_PREFILL ? "prefill" : role == v1::ROLE_DECODE ? "decode" : "unknown";
}

const char* StateName(const v1::InstanceStatus& instance) {
  if (instance.missed()) return "missed";
  if (!instance.load().invariants_ok()) return "broken";
  if (instance.drained()) return "drained";
  if (instance.load().draining()) return "draining";
  if (instance.hangs()) return "hangs";
  if (instance.pace() == "suspect") return "suspect";
  if (instance.pace() == "aside") return "aside";
  return instance.serving() ? "serving" : "starting";
}

const char* StateName(const v1::RouterStatus& router) {
  return router.drained() ? "drained" : router.draining() ? "draining" : "serving";
}

}  // namespace skein::services
