#include "services/store/etcd_store.h"
#include "scheduler/vocabulary/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/store/etcd_range.h"
#include "services/store/store_conformance.h"
#include "services/store/testing/etcd_server.h"

namespace skein::services {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kTimeoutUs = 20'000'000;

std::string Folder(const std::string& name) { return ::testing::TempDir() + "/etcd/" + name; }

// One for all tests of the suite; it ends with the program.
std::unique_ptr<ClusterStore> OpenShared() {
  static const auto server = EtcdServer::Start(Folder("shared"));
  EXPECT_TRUE(server.ok()) << server.status();
  if (!server.ok()) return nullptr;
  return std::make_unique<EtcdStore>(std::vector<std::string>{(*server)->endpoint()});
}

StoreUnderTest Etcd() {
  const std::string why = EtcdServer::WhyNot();
  StoreUnderTest store;
  store.name = "etcd";
  if (why.empty()) store.open = OpenShared;
  store.why = why;
  return store;
}

INSTANTIATE_TEST_SUITE_P(Etcd, StoreConformance, ::testing::Values(Etcd()),
                         [](const auto& info) { return info.param.name; });

// A port on which connections are made and nothing is answered.
class SilentPort {
 public:
  SilentPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    SKEIN_CHECK(bind(fd_, reinterpret_cast<sockaddr*>(&address), size) == 0);
    listen(fd_, 16);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }
  ~SilentPort() { close(fd_); }
  SilentPort(const SilentPort&) = delete;
  SilentPort& operator=(const SilentPort&) = delete;
  std::string Endpoint() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  const int fd_;
  int port_ = 0;
};

class EtcdStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = EtcdServer::WhyNot(); !why.empty()) GTEST_SKIP() << why;
    auto server =
        EtcdServer::Start(Folder(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  std::unique_ptr<EtcdServer> server_;
};

TEST_F(EtcdStoreTest, GoesOnAtTheNextEndpoint) {
  const SilentPort silent;
  const std::string refusing = absl::StrCat("127.0.0.1:", FreePort());
  EtcdStore store({silent.Endpoint(), refusing, server_->endpoint()});
  const auto lease = store.GrantLease(5'000'000, kTimeoutUs);
  ASSERT_TRUE(lease.ok()) << lease.status();
  // It stays with the endpoint that answered, so a commit, which is tried once, finds it.
  EXPECT_TRUE(PutIf(&store, "a", 0, "x", lease->id, kTimeoutUs).ok());
  EXPECT_TRUE(store.RenewLease(lease->id, kTimeoutUs).ok());
  WatchedPrefix watched(&store, "");
  EXPECT_TRUE(watched.Await({"a"}));
}

TEST_F(EtcdStoreTest, SaysWhichEndpointDoesNotAnswerAndWatchesOnAfterwards) {
  EtcdStore store({server_->endpoint()});
  ASSERT_TRUE(PutIf(&store, "a", 0, "x", 0, kTimeoutUs).ok());
  WatchedPrefix watched(&store, "");
  ASSERT_TRUE(watched.Await({"a"}));
  server_->Kill();
  ASSERT_TRUE(watched.AwaitError());
  const auto put = PutIf(&store, "b", 0, "x", 0, kTimeoutUs);
  EXPECT_EQ(put.status().code(), absl::StatusCode::kUnavailable) << put.status();
  EXPECT_THAT(std::string(put.status().message()), HasSubstr(server_->endpoint()));
  ASSERT_TRUE(server_->StartAgain().ok());
  ASSERT_TRUE(watched.Await({"a"}));
  EtcdStore other({server_->endpoint()});
  ASSERT_TRUE(PutIf(&other, "c", 0, "x", 0, kTimeoutUs).ok());
  EXPECT_TRUE(watched.Await({"a", "c"}));
  EXPECT_TRUE(watched.RevisionsGrow());
}

TEST_F(EtcdStoreTest, AnEtcdThatStandsStillIsADeadlineExceeded) {
  EtcdStore store({server_->endpoint()});
  ASSERT_TRUE(PutIf(&store, "a", 0, "x", 0, kTimeoutUs).ok());
  server_->Stop();
  const auto entry = store.Get("a", /*timeout_us=*/50'000);
  EXPECT_EQ(entry.status().code(), absl::StatusCode::kDeadlineExceeded) << entry.status();
  EXPECT_THAT(std::string(entry.status().message()), HasSubstr(server_->endpoint()));
  server_->GoOn();
  EXPECT_TRUE(store.Get("a", kTimeoutUs).ok());
}

TEST_F(EtcdStoreTest, LeasesAreWholeSecondsAndNotShorterThanEtcdAllows) {
  EtcdStore store({server_->endpoint()});
  EXPECT_EQ(store.GrantLease(100'000, kTimeoutUs)->ttl_us, 1'000'000);  // 1.5 * 0.5 s, rounded up
  EXPECT_EQ(store.GrantLease(1'000'001, kTimeoutUs)->ttl_us, 2'000'000);
}

TEST(EtcdEndpoints, AreHostAndPort) {
  EXPECT_THAT(ParseEtcdEndpoints("etcd-0:2379, http://etcd-1:2379,[::1]:1").value(),
              ElementsAre("etcd-0:2379", "etcd-1:2379", "[::1]:1"));
  for (const char* wrong : {"", "etcd", "etcd:", ":2379", "https://etcd:2379", "a:1,,b:1", "a:b"}) {
    EXPECT_EQ(ParseEtcdEndpoints(wrong).status().code(), absl::StatusCode::kInvalidArgument)
        << wrong;
  }
}

TEST(EtcdRangeEnd, IsTheFirstKeyBehindThePrefix) {
  EXPECT_EQ(EtcdRangeEnd("a/"), "a0");
  EXPECT_EQ(EtcdRangeEnd("a\xff"), "b");
  EXPECT_EQ(EtcdRangeEnd(""), std::string(1, '\0'));
  EXPECT_EQ(EtcdRangeEnd("\xff\xff"), std::string(1, '\0'));
}

}  // namespace
}  // namespace skein::services
