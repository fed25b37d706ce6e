#include "services/skeinctl/chaos/kubernetes_target.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "services/skeinctl/chaos/local_process.h"
#include "services/skeinctl/chaos/network_fault.h"

namespace skein::services::chaos {
namespace {

using Json = nlohmann::json;

constexpr auto kLook = std::chrono::milliseconds(500);
constexpr auto kEndMax = std::chrono::seconds(700);  // terminationGracePeriodSeconds, and more
constexpr std::array<const char*, 4> kRoles = {"decode", "orchestrator", "prefill", "router"};

// The value at a path of object keys; null if there is none.
Json At(const Json& json, const std::vector<const char*>& keys) {
  const Json* at = &json;
  for (const char* key : keys) {
    const auto it = at->is_object() ? at->find(key) : at->end();
    if (!at->is_object() || it == at->end()) return nullptr;
    at = &*it;
  }
  return *at;
}

std::string TextAt(const Json& json, const std::vector<const char*>& keys) {
  const Json value = At(json, keys);
  return value.is_string() ? value.get<std::string>() : "";
}

bool IsReady(const Json& pod) {
  if (!At(pod, {"metadata", "deletionTimestamp"}).is_null()) return false;
  for (const Json& condition : At(pod, {"status", "conditions"})) {
    if (TextAt(condition, {"type"}) == "Ready") return TextAt(condition, {"status"}) == "True";
  }
  return false;
}

}  // namespace

absl::StatusOr<std::vector<ChaosProcess>> PodsOf(const std::string& json) {
  const Json list = Json::parse(json, nullptr, false);
  const Json items = At(list, {"items"});
  if (!items.is_array()) return absl::InvalidArgumentError("kubectl did not print a list of pods");
  std::vector<ChaosProcess> pods;
  for (const Json& pod : items) {
    const std::string role = TextAt(pod, {"metadata", "labels", "app.kubernetes.io/component"});
    if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) continue;
    pods.push_back(
        {.name = TextAt(pod, {"metadata", "name"}), .role = role, .serving = IsReady(pod)});
  }
  std::sort(pods.begin(), pods.end(),
            [](const ChaosProcess& a, const ChaosProcess& b) { return a.name < b.name; });
  return pods;
}

absl::StatusOr<std::string> KubernetesTarget::Kubectl(
    const std::vector<std::string>& arguments) const {
  std::vector<std::string> command = {options_.kubectl};
  if (!options_.kubeconfig.empty()) command.push_back("--kubeconfig=" + options_.kubeconfig);
  command.push_back("--namespace=" + options_.name_space);
  command.push_back("--request-timeout=20s");
  command.insert(command.end(), arguments.begin(), arguments.end());
  return OutputOf(command);
}

absl::StatusOr<std::vector<ChaosProcess>> KubernetesTarget::Processes() {
  const auto json =
      Kubectl({"get", "pods", "--selector=app.kubernetes.io/name=skein", "--output=json"});
  if (!json.ok()) return json.status();
  return PodsOf(*json);
}

absl::Status KubernetesTarget::Allows(Fault fault) const {
  if (NetworkFaultOf(fault)) {
    return absl::UnimplementedError(
        "the network of pods is not broken yet; only that of local processes");
  }
  if (fault != Fault::kStop) return absl::OkStatus();
  return absl::UnimplementedError(
      "Kubernetes has no way to stop a container's first process and let it go on");
}

absl::Status KubernetesTarget::AllowsAbsence() const {
  return absl::UnimplementedError("Kubernetes replaces a deleted pod at once");
}

absl::StatusOr<std::string> KubernetesTarget::UidOf(const std::string& pod) const {
  return Kubectl({"get", "pod", pod, "--ignore-not-found", "--output=jsonpath={.metadata.uid}"});
}

absl::Status KubernetesTarget::Break(const ChaosProcess& process, Fault fault) {
  const auto uid = UidOf(process.name);
  if (!uid.ok()) return uid.status();
  uids_[process.name] = *uid;
  std::vector<std::string> arguments = {"delete", "pod", process.name, "--wait=false"};
  if (fault == Fault::kKill) {
    arguments.insert(arguments.end(), {"--grace-period=0", "--force"});
  }
  return Kubectl(arguments).status();
}

absl::Status KubernetesTarget::End(const ChaosProcess& process, Fault) {
  const auto until = std::chrono::steady_clock::now() + kEndMax;
  while (true) {
    const auto uid = UidOf(process.name);
    if (!uid.ok()) return uid.status();
    // The next pod of a StatefulSet has the same name.
    if (*uid != uids_[process.name]) return absl::OkStatus();
    if (std::chrono::steady_clock::now() > until) {
      return absl::DeadlineExceededError(
          absl::StrCat("pod ", process.name, " still runs after ", kEndMax.count(), " s"));
    }
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace skein::services::chaos
