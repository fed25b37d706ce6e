// EtcdCalls: calls to one of several endpoints of an etcd cluster. A call goes to the endpoint that
// answered last; if it does not answer, to the next one. Each endpoint gets an equal share of the
// time, so one that hangs does not use up what the others need.
//
// A call is answered only by an etcd that has a leader (the metadata `hasleader`): a member that
// was cut off from the others says so, and the next one is tried.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"

namespace skein::services {

// "HOST:PORT", "http://HOST:PORT" or, where the process has certificates (--tls-dir), which it then
// uses for etcd as well, "https://HOST:PORT"; separated by commas; as HOST:PORT. INVALID_ARGUMENT
// names one that is none of these. Users and passwords are not there yet: etcd takes the
// certificate's name for the user (--client-cert-auth).
absl::StatusOr<std::vector<std::string>> ParseEtcdEndpoints(const std::string& text);

// Thread-safe.
class EtcdCalls {
 public:
  using Call = std::function<grpc::Status(const std::shared_ptr<grpc::Channel>& channel,
                                          grpc::ClientContext* context)>;

  // At least one endpoint.
  explicit EtcdCalls(std::vector<std::string> endpoints);

  // Tries each endpoint once at most, until one answers. For calls that may be carried out twice.
  // Errors are etcd's, with its endpoint; UNAVAILABLE if no endpoint answered.
  absl::Status Try(int64_t timeout_us, const Call& call);
  // One endpoint only. If it does not answer, the next call begins with the next one.
  absl::Status TryOnce(int64_t timeout_us, const Call& call);

  // For a stream: the endpoint of now. Failed(the same) if it ended: then the next one is.
  size_t Current() const;
  void Failed(size_t endpoint);
  std::shared_ptr<grpc::Channel> Channel(size_t endpoint) const { return channels_[endpoint]; }
  // Of every call and stream.
  static void Prepare(grpc::ClientContext* context);

  std::string Names() const;  // for errors

 private:
  absl::Status CallOne(size_t endpoint, int64_t timeout_us, const Call& call);
  absl::Status Error(size_t endpoint, const grpc::Status& status) const;

  const std::vector<std::string> endpoints_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  mutable std::mutex mu_;
  size_t current_ = 0;
};

}  // namespace skein::services
