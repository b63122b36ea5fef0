"""A gRPC server that knows nothing but how it is, with the health service that gRPC's own package brings.

Says its port, then takes lines of `SERVICE STATUS` (`- SERVING` for the server as a whole) and repeats each when it holds.
"""

import concurrent.futures
import sys

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=2))
servicer = health.HealthServicer()
health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
print(server.add_insecure_port("0.0.0.0:0"), flush=True)
server.start()
for line in sys.stdin:
    service, status = line.split()
    servicer.set("" if service == "-" else service, health_pb2.HealthCheckResponse.ServingStatus.Value(status))
    print(line, end="", flush=True)
