// EtcdStore: a ClusterStore in etcd 3.4 or later, over its gRPC API v3
// (third_party/interfaces/etcd).
//
// Reads are linearizable (etcd's default): they see every commit that was acknowledged before them.
// A time to live is whole seconds, rounded up, and at least 1.5 times etcd's election timeout, also
// in whole seconds: 2 s as etcd comes. After its time a lease ends within some 0.5 s, which is how
// often etcd looks.
//
// A commit is sent to one endpoint and never repeated: whether the first was carried out would be
// unknown, and a repeated one could answer ABORTED although the first was. All else goes to the
// next endpoint if one does not answer.
//
// Users, passwords and TLS are not there yet: an etcd that asks for them refuses every call, and
// the error says so.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/store/cluster_store.h"
#include "services/store/etcd_calls.h"

namespace skein::services {

class EtcdStore final : public ClusterStore {
 public:
  // REQUIRES at least one, HOST:PORT. Nobody needs to be there yet.
  explicit EtcdStore(std::vector<std::string> endpoints);
  ~EtcdStore() override;

  absl::StatusOr<StoreEntry> Get(const std::string& key, int64_t timeout_us) override;
  absl::StatusOr<StoreSnapshot> List(const std::string& prefix, int64_t timeout_us) override;
  absl::StatusOr<int64_t> Commit(const StoreCommit& commit, int64_t timeout_us) override;
  std::unique_ptr<StoreWatch> Watch(const std::string& prefix, Changed changed) override;
  absl::StatusOr<StoreLease> GrantLease(int64_t ttl_us, int64_t timeout_us) override;
  absl::StatusOr<int64_t> RenewLease(uint64_t lease, int64_t timeout_us) override;
  absl::Status RevokeLease(uint64_t lease, int64_t timeout_us) override;

 private:
  absl::Status LeaseEnded(uint64_t lease) const;

  EtcdCalls calls_;
};

}  // namespace skein::services
