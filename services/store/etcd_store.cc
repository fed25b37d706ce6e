#include "services/store/etcd_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/store/etcd_range.h"
#include "services/store/etcd_watch.h"
#include "services/store/store_checks.h"
#include "third_party/interfaces/etcd/rpc.grpc.pb.h"

namespace skein::services {
namespace {

constexpr int64_t kSecondUs = 1'000'000;

etcdserverpb::TxnRequest ToTxn(const StoreCommit& commit) {
  etcdserverpb::TxnRequest request;
  for (const auto& expected : commit.expected) {
    auto* compare = request.add_compare();
    compare->set_key(expected.key);
    compare->set_target(etcdserverpb::Compare::MOD);  // 0 where there is no such key
    compare->set_result(etcdserverpb::Compare::EQUAL);
    compare->set_mod_revision(expected.revision);
  }
  for (const auto& put : commit.puts) {
    auto* one = request.add_success()->mutable_request_put();
    one->set_key(put.key);
    one->set_value(put.value);
    one->set_lease(static_cast<int64_t>(put.lease));
  }
  for (const std::string& key : commit.deletes) {
    request.add_success()->mutable_request_delete_range()->set_key(key);
  }
  return request;
}

}  // namespace

EtcdStore::EtcdStore(std::vector<std::string> endpoints) : calls_(std::move(endpoints)) {}
EtcdStore::~EtcdStore() = default;

absl::Status EtcdStore::LeaseEnded(uint64_t lease) const {
  return absl::NotFoundError(absl::StrCat(calls_.Names(), ": lease ", lease, " has ended"));
}

absl::StatusOr<StoreEntry> EtcdStore::Get(const std::string& key, int64_t timeout_us) {
  auto snapshot = ReadEtcdRange(&calls_, key, "", timeout_us);
  if (!snapshot.ok()) return snapshot.status();
  if (snapshot->entries.empty()) {
    return absl::NotFoundError(absl::StrCat(calls_.Names(), " has no entry ", key));
  }
  return std::move(snapshot->entries.front());
}

absl::StatusOr<StoreSnapshot> EtcdStore::List(const std::string& prefix, int64_t timeout_us) {
  return ReadEtcdRange(&calls_, prefix, EtcdRangeEnd(prefix), timeout_us);
}

absl::StatusOr<int64_t> EtcdStore::Commit(const StoreCommit& commit, int64_t timeout_us) {
  if (absl::Status good = CheckCommit(commit); !good.ok()) return good;
  const etcdserverpb::TxnRequest request = ToTxn(commit);
  etcdserverpb::TxnResponse response;
  absl::Status status = calls_.TryOnce(timeout_us, [&](const auto& channel, auto* context) {
    return etcdserverpb::KV::NewStub(channel)->Txn(context, request, &response);
  });
  if (!status.ok()) return status;
  if (response.succeeded()) return response.header().revision();
  return absl::AbortedError(
      absl::StrCat(calls_.Names(), ": an entry has changed since it was read"));
}

std::unique_ptr<StoreWatch> EtcdStore::Watch(const std::string& prefix, Changed changed) {
  return std::make_unique<EtcdWatch>(&calls_, prefix, std::move(changed));
}

absl::StatusOr<StoreLease> EtcdStore::GrantLease(int64_t ttl_us, int64_t timeout_us) {
  if (absl::Status good = CheckTtl(ttl_us); !good.ok()) return good;
  etcdserverpb::LeaseGrantRequest request;
  request.set_ttl((ttl_us + kSecondUs - 1) / kSecondUs);
  etcdserverpb::LeaseGrantResponse response;
  absl::Status status = calls_.Try(timeout_us, [&](const auto& channel, auto* context) {
    response.Clear();
    return etcdserverpb::Lease::NewStub(channel)->LeaseGrant(context, request, &response);
  });
  if (!status.ok()) return status;
  return StoreLease{static_cast<uint64_t>(response.id()), response.ttl() * kSecondUs};
}

absl::StatusOr<int64_t> EtcdStore::RenewLease(uint64_t lease, int64_t timeout_us) {
  etcdserverpb::LeaseKeepAliveRequest request;
  request.set_id(static_cast<int64_t>(lease));
  etcdserverpb::LeaseKeepAliveResponse response;
  // A stream of one message.
  absl::Status status = calls_.Try(timeout_us, [&](const auto& channel, auto* context) {
    response.Clear();
    const auto stub = etcdserverpb::Lease::NewStub(channel);
    const auto stream = stub->LeaseKeepAlive(context);
    const bool answered = stream->Write(request) && stream->Read(&response);
    if (answered) context->TryCancel();  // nothing else is wanted of it
    const grpc::Status end = stream->Finish();
    if (answered) return grpc::Status::OK;
    return end.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "it ended the call") : end;
  });
  if (!status.ok()) return status;
  if (response.ttl() <= 0) return LeaseEnded(lease);
  return response.ttl() * kSecondUs;
}

absl::Status EtcdStore::RevokeLease(uint64_t lease, int64_t timeout_us) {
  etcdserverpb::LeaseRevokeRequest request;
  request.set_id(static_cast<int64_t>(lease));
  return calls_.Try(timeout_us, [&](const auto& channel, auto* context) {
    etcdserverpb::LeaseRevokeResponse response;
    return etcdserverpb::Lease::NewStub(channel)->LeaseRevoke(context, request, &response);
  });
}

}  // namespace skein::services
