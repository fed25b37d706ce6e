// A cluster on Kubernetes: pods are deleted through `kubectl`, and Kubernetes starts others.
//
// A container's first process ignores SIGKILL and SIGSTOP from within its container, and no API
// sends signals. So a kill is a deletion without grace, and nothing can be stopped.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "services/skeinctl/chaos/chaos_target.h"

namespace skein::services::chaos {

struct KubernetesOptions {
  std::string kubectl = "kubectl";
  std::string kubeconfig;  // file; empty: kubectl's default
  std::string name_space = "skein";
};

// The pods of the four roles in `kubectl get pods -o json`, sorted by name. Pods of skein-node hold
// processes of several roles and are left out. INVALID_ARGUMENT: not a list of pods.
absl::StatusOr<std::vector<ChaosProcess>> PodsOf(const std::string& json);

class KubernetesTarget final : public ChaosTarget {
 public:
  explicit KubernetesTarget(KubernetesOptions options) : options_(std::move(options)) {}

  absl::StatusOr<std::vector<ChaosProcess>> Processes() override;
  absl::Status Allows(Fault fault) const override;
  absl::Status AllowsAbsence() const override;
  absl::Status Break(const ChaosProcess& process, Fault fault) override;
  absl::Status End(const ChaosProcess& process, Fault fault) override;
  absl::Status Restart(const ChaosProcess&) override { return absl::OkStatus(); }
  std::string Describe() const override { return "pods"; }

 private:
  absl::StatusOr<std::string> Kubectl(const std::vector<std::string>& arguments) const;

  // Empty: there is no such pod.
  absl::StatusOr<std::string> UidOf(const std::string& pod) const;

  const KubernetesOptions options_;
  std::map<std::string, std::string> uids_;  // of pods that were broken, by name
};

}  // namespace skein::services::chaos
