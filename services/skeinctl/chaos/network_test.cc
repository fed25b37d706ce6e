// Which packets a fault of the network means, by hand-made packets and sockets.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <set>
#include <string>
#include <vector>

#include "services/skeinctl/chaos/network_fault.h"
#include "services/skeinctl/chaos/packet_judge.h"
#include "services/skeinctl/chaos/socket_table.h"

namespace skein::services::chaos {
namespace {

constexpr pid_t kOrchestrator = 10;
constexpr pid_t kDecode = 11;
constexpr pid_t kPrefill = 12;
constexpr pid_t kRouter = 13;
constexpr uint16_t kOrchestratorPort = 1000;
constexpr uint16_t kDecodePort = 1100;
constexpr uint16_t kPrefillPort = 1200;
constexpr uint16_t kRouterPort = 1300;

constexpr uint8_t kSyn = 0x02;
constexpr uint8_t kAck = 0x10;

// An IPv4 header of `words` times four bytes and a TCP header.
std::vector<uint8_t> PacketOf(uint16_t from, uint16_t to, uint8_t flags = kAck, uint8_t words = 5) {
  std::vector<uint8_t> packet(size_t{words} * 4 + 20);
  packet[0] = static_cast<uint8_t>(0x40 | words);
  packet[9] = 6;
  uint8_t* tcp = packet.data() + size_t{words} * 4;
  tcp[0] = static_cast<uint8_t>(from >> 8);
  tcp[1] = static_cast<uint8_t>(from);
  tcp[2] = static_cast<uint8_t>(to >> 8);
  tcp[3] = static_cast<uint8_t>(to);
  tcp[13] = flags;
  return packet;
}

class PacketJudgeTest : public testing::Test {
 protected:
  // The decode process has connected to the orchestrator; the prefill process and the router to
  // the decode process; a client to the router.
  PacketJudgeTest() {
    sockets_.listeners = {{kOrchestratorPort, kOrchestrator},
                          {kDecodePort, kDecode},
                          {kPrefillPort, kPrefill},
                          {kRouterPort, kRouter}};
    sockets_.connections = {{{5000, kOrchestratorPort}, kDecode},
                            {{5001, kDecodePort}, kPrefill},
                            {{5002, kDecodePort}, kRouter},
                            {{5003, kOrchestratorPort}, kRouter}};
  }

  PacketJudge JudgeOf(NetworkFault fault, pid_t victim = kDecode) {
    return {fault,
            victim,
            {{kOrchestrator, Side::kOrchestrator},
             {kDecode, Side::kOther},
             {kPrefill, Side::kOther},
             {kRouter, Side::kOther}},
            [this] {
              ++looks_;
              return sockets_;
            }};
  }

  SocketTable sockets_;
  int looks_ = 0;
};

bool Drops(PacketJudge* judge, uint16_t from, uint16_t to) {
  return judge->Decide(PacketOf(from, to)).drop;
}

TEST_F(PacketJudgeTest, AControlPartitionCutsOrchestratorsOnly) {
  PacketJudge judge = JudgeOf(*NetworkFaultOf(Fault::kPartitionControl));
  EXPECT_TRUE(Drops(&judge, 5000, kOrchestratorPort));
  EXPECT_TRUE(Drops(&judge, kOrchestratorPort, 5000));
  EXPECT_FALSE(Drops(&judge, 5001, kDecodePort));
  EXPECT_FALSE(Drops(&judge, kDecodePort, 5002));
  EXPECT_FALSE(Drops(&judge, 5003, kOrchestratorPort)) << "the router is not the victim";
  EXPECT_EQ(judge.Ports(), (std::set<uint16_t>{kOrchestratorPort, kDecodePort}));
}

TEST_F(PacketJudgeTest, ADataPartitionCutsAllButOrchestrators) {
  PacketJudge judge = JudgeOf(*NetworkFaultOf(Fault::kPartitionData));
  EXPECT_FALSE(Drops(&judge, 5000, kOrchestratorPort));
  EXPECT_TRUE(Drops(&judge, 5001, kDecodePort));
  EXPECT_TRUE(Drops(&judge, kDecodePort, 5001));
  EXPECT_TRUE(Drops(&judge, kDecodePort, 5002));
  EXPECT_EQ(judge.Ports(), (std::set<uint16_t>{kDecodePort, kPrefillPort, kRouterPort}));
}

TEST_F(PacketJudgeTest, OneWayIsOneWay) {
  PacketJudge in = JudgeOf(*NetworkFaultOf(Fault::kOnewayDataIn));
  EXPECT_TRUE(Drops(&in, 5001, kDecodePort));
  EXPECT_FALSE(Drops(&in, kDecodePort, 5001));
  PacketJudge out = JudgeOf(*NetworkFaultOf(Fault::kOnewayControlOut));
  EXPECT_TRUE(Drops(&out, 5000, kOrchestratorPort));
  EXPECT_FALSE(Drops(&out, kOrchestratorPort, 5000));
}

TEST_F(PacketJudgeTest, AnOrchestratorsNetworkIsTheControlPlane) {
  PacketJudge control = JudgeOf(*NetworkFaultOf(Fault::kPartitionControl), kOrchestrator);
  EXPECT_TRUE(Drops(&control, 5000, kOrchestratorPort));
  EXPECT_TRUE(Drops(&control, kOrchestratorPort, 5003));
  EXPECT_FALSE(Drops(&control, 5001, kDecodePort));
}

TEST_F(PacketJudgeTest, ClientsAreNotCutOffAndAreLookedForOnce) {
  PacketJudge judge = JudgeOf(*NetworkFaultOf(Fault::kPartitionBoth), kRouter);
  EXPECT_FALSE(Drops(&judge, 6000, kRouterPort));
  const int looks = looks_;
  EXPECT_FALSE(Drops(&judge, 6000, kRouterPort));
  EXPECT_FALSE(Drops(&judge, kRouterPort, 6000));
  EXPECT_EQ(looks_, looks);
}

TEST_F(PacketJudgeTest, ANewConnectionIsMetFromItsFirstPacket) {
  PacketJudge judge = JudgeOf(*NetworkFaultOf(Fault::kPartitionData));
  EXPECT_FALSE(judge.Decide(PacketOf(7000, kDecodePort, kSyn)).drop) << "a stranger's";
  sockets_.connections[{7000, kDecodePort}] = kPrefill;  // the same port, used again
  EXPECT_TRUE(judge.Decide(PacketOf(7000, kDecodePort, kSyn)).drop);
}

TEST_F(PacketJudgeTest, WhatAClosedConnectionSendsIsStillMet) {
  PacketJudge judge = JudgeOf(*NetworkFaultOf(Fault::kPartitionData));
  sockets_.connections.erase({5001, kDecodePort});
  EXPECT_FALSE(judge.Decide(PacketOf(7001, kDecodePort, kSyn)).drop);  // it looks anew
  EXPECT_TRUE(Drops(&judge, 5001, kDecodePort));
}

TEST_F(PacketJudgeTest, DelayAndLoss) {
  PacketJudge delay = JudgeOf(*NetworkFaultOf(Fault::kDelay));
  const PacketVerdict late = delay.Decide(PacketOf(5002, kDecodePort));
  EXPECT_FALSE(late.drop);
  EXPECT_GT(late.delay_s, 0);
  EXPECT_EQ(delay.Decide(PacketOf(5003, kOrchestratorPort)).delay_s, 0);
  PacketJudge loss = JudgeOf(*NetworkFaultOf(Fault::kLoss));
  int lost = 0;
  for (int i = 0; i < 10000; ++i) lost += Drops(&loss, 5002, kDecodePort) ? 1 : 0;
  EXPECT_GT(lost, 300);
  EXPECT_LT(lost, 700);
}

TEST_F(PacketJudgeTest, OtherPacketsGoOn) {
  PacketJudge judge = JudgeOf(*NetworkFaultOf(Fault::kPartitionBoth));
  std::vector<uint8_t> packet = PacketOf(5002, kDecodePort);
  for (size_t size = 0; size < 34; ++size) {
    EXPECT_FALSE(judge.Decide(std::span(packet.data(), size)).drop) << size;
  }
  packet[9] = 17;  // UDP
  EXPECT_FALSE(judge.Decide(packet).drop);
  EXPECT_TRUE(judge.Decide(PacketOf(5002, kDecodePort, kAck, 15)).drop) << "with IP options";
}

TEST(SocketTable, LinesOfTheKernelAreRead) {
  const std::string text =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
      "inode\n"
      "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 "
      "123 1 0 100 0 0 10 0\n"
      "   1: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 "
      "456 1 0 20 4 30 10 -1\n"
      "   2: 0100007F:C351 0100007F:1F90 06 00000000:00000000 03:00000000 00000000     0        0 "
      "0 "
      "3 0\n";
  const auto sockets = TcpSocketsOf(text);
  ASSERT_EQ(sockets.size(), 2U) << "the last one belongs to nobody";
  EXPECT_TRUE(sockets[0].listens);
  EXPECT_EQ(sockets[0].local_port, 8080);
  EXPECT_FALSE(sockets[1].listens);
  EXPECT_EQ(sockets[1].local_port, 50000);
  EXPECT_EQ(sockets[1].remote_port, 8080);
  EXPECT_EQ(sockets[1].link, "socket:[456]");
}

TEST(SocketTable, OwnSocketsAreFound) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const to = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(listener, to, size), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  ASSERT_EQ(getsockname(listener, to, &size), 0);
  ASSERT_EQ(connect(client, to, size), 0);
  const uint16_t port = ntohs(address.sin_port);
  ASSERT_EQ(getsockname(client, to, &size), 0);
  const uint16_t from = ntohs(address.sin_port);
  const SocketTable table = SocketTable::Of({getpid()});
  EXPECT_EQ(table.OwnerOf(port, from), getpid()) << "not accepted yet";
  EXPECT_EQ(table.OwnerOf(from, port), getpid());
  EXPECT_EQ(SocketTable::Of({}).OwnerOf(from, port), 0);
  close(client);
  close(listener);
}

TEST(NetworkFault, EachFaultOfTheNetworkSaysWhatItDoes) {
  for (const Fault fault : NetworkFaults()) {
    ASSERT_TRUE(NetworkFaultOf(fault).has_value()) << NameOf(fault);
    EXPECT_TRUE(Lasts(fault));
    EXPECT_FALSE(NetworkSummary(fault, "decode").empty());
  }
  EXPECT_FALSE(NetworkFaultOf(Fault::kKill).has_value());
  EXPECT_NE(FindScenario("partition-control-orchestrator"), nullptr);
  EXPECT_EQ(FindScenario("partition-data-orchestrator"), nullptr);
  EXPECT_NE(FindScenario("oneway-data-in-decode"), nullptr);
  EXPECT_NE(FindScenario("loss-orchestrator"), nullptr);
}

}  // namespace
}  // namespace skein::services::chaos
