# The scenario of ../README.md with Action Cable: what one process broadcasts comes to the sockets of another one.

require "open3"
require "timeout"
require_relative "cable"
require_relative "socket"

WOKEN = 20 # one after the other, each when nothing else is to be done
WRITERS = 4
TRANSACTIONS = 25 # of each writer
ROWS_PER_TRANSACTION = 10
SOCKETS = 3
DEADLINE_S = Float(ENV.fetch("DEADLINE_S"))
OTHERS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
  WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"

$steps = []

def fail_with(message)
  warn "action-cable: #{$steps.last || 'start'}: #{message}"
  exit! 1
end

# A server, and the sockets that are connected to it.
class Site
  attr_reader :sockets

  def initialize
    _stdin, stdout, @server = Open3.popen2("ruby", File.join(__dir__, "server.rb"), err: File::NULL)
    port = Integer(stdout.gets || fail_with("the server has not started"))
    @sockets = Array.new(SOCKETS) { CableSocket.new(port) }
  end

  def wait
    Timeout.timeout(DEADLINE_S) { @server.value }
  rescue Timeout::Error
    fail_with("the server has not ended")
  end
end

# These texts in one transaction, which commits or not.
def broadcast(texts, commit: true)
  ActiveRecord::Base.transaction do
    texts.each { |text| ActionCable.server.broadcast("orders", text) }
    raise ActiveRecord::Rollback unless commit
  end
end

def next_of(socket)
  Timeout.timeout(DEADLINE_S) { socket.texts.pop }
rescue Timeout::Error
  fail_with("nothing was heard within #{DEADLINE_S} s")
end

# All sockets must hear this next.
def expect(sockets, text)
  sockets.each do |socket|
    heard = next_of(socket)
    fail_with("heard #{heard.inspect} instead of #{text.inspect}") unless heard == text
  end
end

# One writer's part of the burst, on a connection of its own.
def write(writer)
  TRANSACTIONS.times do |i|
    broadcast(Array.new(ROWS_PER_TRANSACTION) { |row| "#{writer} #{i * ROWS_PER_TRANSACTION + row}" })
  end
ensure
  ActiveRecord::Base.clear_active_connections!
end

# Several writers at once; each socket hears each row once, in the order in which Action Cable's threads send them.
# Gives rows per second.
def burst(sockets)
  began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  writers = Array.new(WRITERS) { |writer| Thread.new { write(writer) } }
  rows = [*0...WRITERS].product([*0...TRANSACTIONS * ROWS_PER_TRANSACTION])
  sockets.each do |socket|
    heard = Array.new(rows.size) { next_of(socket).split.map(&:to_i) }
    again = heard.tally.select { |_row, times| times > 1 }.keys
    fail_with("not heard: #{rows - heard}; heard again: #{again}") unless heard.sort == rows
  end
  writers.each(&:join)
  rows.size / (Process.clock_gettime(Process::CLOCK_MONOTONIC) - began)
end

# All connections break: the server ends, as Action Cable means it to. Its successor hears everything again.
def reconnect(site)
  ActiveRecord::Base.connection.execute(OTHERS)
  status = site.wait
  fail_with("the server has ended as if all was well") if status.success?
  expect(site.sockets, nil)
  ActiveRecord::Base.clear_all_connections!
  broadcast(["missed"])
  sockets = Site.new.sockets
  broadcast(["after reconnecting"])
  expect(sockets, "after reconnecting")
end

Thread.report_on_exception = false
site = Site.new
$steps << "woken"
WOKEN.times do |n|
  broadcast(["woken #{n}"])
  expect(site.sockets, "woken #{n}")
end
$steps << "burst"
per_second = burst(site.sockets)
$steps << "rollback"
broadcast(["rolled back"], commit: false)
broadcast(["committed"])
expect(site.sockets, "committed")
$steps << "reconnect"
reconnect(site)
version = ActionCable.version.to_s
puts({ framework: "action-cable", version: version, steps: $steps, per_second: per_second.round }.to_json)
$stdout.flush
exit! 0
