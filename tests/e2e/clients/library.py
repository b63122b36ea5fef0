"""What programs do with the Kubernetes client for Python, against the server that KUBECONFIG names.

Every answer is checked by the library's own models, which refuse what the published API does not allow. Run with
`python -m unittest`; it makes a namespace of its own and deletes it in the end.
"""

import base64
import threading
import time
import unittest

from kubernetes import client, config, dynamic, stream, utils, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError

SLEEPER = ["sh", "-c", "trap 'echo goodbye; exit 0' TERM; echo hello; sleep 1000 & wait"]

# Bytes of past objects that the server keeps at most, and a value that fills them soon.
HISTORY = 32 << 20
MUCH = "x" * 1_000_000

# How long anything may take that should happen at once.
SOON = 60


def setUpModule():
    global core, apps, namespace
    config.load_kube_config()
    core, apps = client.CoreV1Api(), client.AppsV1Api()
    made = core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(generate_name="python-")))
    namespace = made.metadata.name


def tearDownModule():
    core.delete_namespace(namespace)


def config_map(name, labels=None, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels=labels), data=data)


def pod(name, command=SLEEPER, **spec):
    container = client.V1Container(name="app", image="busybox", image_pull_policy="IfNotPresent", command=command)
    spec = client.V1PodSpec(containers=[container], **spec)
    return client.V1Pod(metadata=client.V1ObjectMeta(name=name, labels={"app": name}), spec=spec)


def wait_for_pod(name, holds):
    """Looks, and watches from there, until the pod is as wanted; None is a pod that is gone."""
    watching = watch.Watch()
    selector = f"metadata.name={name}"
    listed = core.list_namespaced_pod(namespace, field_selector=selector)
    seen = listed.items[0] if listed.items else None
    if holds(seen):
        return seen
    for event in watching.stream(
        core.list_namespaced_pod, namespace, field_selector=selector, timeout_seconds=SOON,
        resource_version=listed.metadata.resource_version,
    ):
        seen = None if event["type"] == "DELETED" else event["object"]
        if holds(seen):
            watching.stop()
            return seen
    raise AssertionError(f"not seen of {name} in time")


def is_ready(seen):
    conditions = (seen and seen.status.conditions) or []
    return any(each.type == "Ready" and each.status == "True" for each in conditions)


class Objects(unittest.TestCase):
    def test_the_version_and_the_apis_are_told(self):
        version = client.VersionApi().get_code()
        self.assertEqual((version.major, version.minor), ("1", "36"))
        self.assertIn("adieu", version.git_version)
        groups = [group.name for group in client.ApisApi().get_api_versions().groups]
        self.assertIn("apps", groups)
        self.assertIn("pods", [each.name for each in core.get_api_resources().resources])
        self.assertIn("deployments", [each.name for each in apps.get_api_resources().resources])

    def test_an_object_is_created_read_replaced_and_deleted(self):
        made = core.create_namespaced_config_map(namespace, config_map("whole", a="1"))
        self.assertTrue(made.metadata.uid and made.metadata.creation_timestamp and made.metadata.resource_version)
        self.assertIsNone(made.metadata.self_link)
        made.data["a"] = "2"
        replaced = core.replace_namespaced_config_map("whole", namespace, made)
        self.assertEqual(core.read_namespaced_config_map("whole", namespace).data, {"a": "2"})
        self.assertGreater(int(replaced.metadata.resource_version), int(made.metadata.resource_version))
        with self.assertRaises(ApiException) as refused:
            core.replace_namespaced_config_map("whole", namespace, made)
        self.assertEqual((refused.exception.status, refused.exception.reason), (409, "Conflict"))
        status = core.delete_namespaced_config_map("whole", namespace)
        self.assertEqual(status["status"], "Success")
        self.assertEqual(status["details"], {"kind": "configmaps", "name": "whole", "uid": made.metadata.uid})
        with self.assertRaises(ApiException) as absent:
            core.read_namespaced_config_map("whole", namespace)
        self.assertEqual(absent.exception.status, 404)

    def test_every_kind_of_patch(self):
        core.create_namespaced_config_map(namespace, config_map("patched", a="1"))
        steps = [
            ("application/json-patch+json", [{"op": "add", "path": "/data/b", "value": "2"}], {"a": "1", "b": "2"}),
            ("application/merge-patch+json", {"data": {"a": None}}, {"b": "2"}),
            ("application/strategic-merge-patch+json", {"data": {"c": "3"}}, {"b": "2", "c": "3"}),
        ]
        for content_type, body, expected in steps:
            with self.subTest(content_type):
                patched = core.patch_namespaced_config_map("patched", namespace, body, _content_type=content_type)
                self.assertEqual(patched.data, expected)
        applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "patched"}, "data": {"c": "4"}}
        with self.assertRaises(ApiException) as refused:
            core.patch_namespaced_config_map(
                "patched", namespace, applied, field_manager="applier", _content_type="application/apply-patch+yaml"
            )
        self.assertEqual(refused.exception.status, 409)
        self.assertIn('conflict with \\"', refused.exception.body)
        forced = core.patch_namespaced_config_map(
            "patched", namespace, applied, field_manager="applier", force=True,
            _content_type="application/apply-patch+yaml",
        )
        self.assertEqual(forced.data, {"b": "2", "c": "4"})
        managers = {(each.manager, each.operation) for each in forced.metadata.managed_fields}
        self.assertIn(("applier", "Apply"), managers)

    def test_deletes_take_their_options(self):
        made = core.create_namespaced_config_map(namespace, config_map("kept"))
        with self.assertRaises(ApiException) as refused:
            core.delete_namespaced_config_map(
                "kept", namespace, body=client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="other"))
            )
        self.assertEqual(refused.exception.status, 409)
        core.delete_namespaced_config_map("kept", namespace, dry_run="All")
        core.delete_namespaced_config_map(
            "kept", namespace, propagation_policy="Background",
            body=client.V1DeleteOptions(preconditions=client.V1Preconditions(uid=made.metadata.uid)),
        )
        for name in ["one", "two", "three"]:
            labels = {"sweep": "yes"} if name != "three" else {}
            core.create_namespaced_config_map(namespace, config_map(name, labels))
        core.delete_collection_namespaced_config_map(namespace, label_selector="sweep=yes")
        left = core.list_namespaced_config_map(namespace, field_selector="metadata.name!=kube-root-ca.crt")
        self.assertEqual([each.metadata.name for each in left.items if each.metadata.name in ("one", "two", "three")], ["three"])

    def test_nothing_is_stored_by_a_dry_run(self):
        made = core.create_namespaced_config_map(namespace, config_map("dry"), dry_run="All")
        self.assertTrue(made.metadata.uid)
        with self.assertRaises(ApiException):
            core.read_namespaced_config_map("dry", namespace)

    def test_mistakes_are_told_by_field(self):
        broken = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "A", "image": ""}]}}
        with self.assertRaises(ApiException) as refused:
            core.create_namespaced_pod(namespace, broken)
        self.assertEqual(refused.exception.status, 422)
        for field in ["spec.containers[0].name", "spec.containers[0].image"]:
            self.assertIn(field, refused.exception.body)
        maps = client.CustomObjectsApi()
        with self.assertRaises(ApiException) as refused:
            maps.create_namespaced_custom_object(
                "apps", "v1", namespace, "controllerrevisions",
                {"metadata": {"name": "x"}, "revision": 1, "datta": {}}, field_validation="Strict",
            )
        self.assertEqual(refused.exception.status, 400)
        self.assertIn('unknown field \\"datta\\"', refused.exception.body)

    def test_a_list_comes_in_pages_of_one_moment(self):
        for name in "abcde":
            core.create_namespaced_secret(
                namespace, client.V1Secret(metadata=client.V1ObjectMeta(name=name), string_data={"k": name})
            )
        names, token, versions = [], None, set()
        while True:
            page = core.list_namespaced_secret(namespace, limit=2, _continue=token)
            names += [each.metadata.name for each in page.items]
            versions.add(page.metadata.resource_version)
            token = page.metadata._continue
            if not token:
                break
            if len(names) == 2:
                core.delete_namespaced_secret("e", namespace)
        self.assertEqual((names, len(versions)), (list("abcde"), 1))
        self.assertEqual(base64.b64decode(core.read_namespaced_secret("a", namespace).data["k"]), b"a")

    def test_workloads_and_their_scale(self):
        template = client.V1PodTemplateSpec(
            metadata=client.V1ObjectMeta(labels={"app": "web"}),
            spec=client.V1PodSpec(containers=[client.V1Container(name="web", image="nginx")]),
        )
        spec = client.V1DeploymentSpec(
            replicas=0, selector=client.V1LabelSelector(match_labels={"app": "web"}), template=template
        )
        made = apps.create_namespaced_deployment(
            namespace, client.V1Deployment(metadata=client.V1ObjectMeta(name="web"), spec=spec)
        )
        self.assertEqual((made.spec.strategy.type, made.metadata.generation), ("RollingUpdate", 1))
        scale = apps.read_namespaced_deployment_scale("web", namespace)
        self.assertEqual((scale.spec.replicas or 0, scale.status.selector), (0, "app=web"))
        scaled = apps.patch_namespaced_deployment_scale("web", namespace, {"spec": {"replicas": 1}})
        self.assertEqual(scaled.spec.replicas, 1)
        apps.patch_namespaced_deployment_scale("web", namespace, {"spec": {"replicas": 0}})
        apps.delete_namespaced_deployment("web", namespace, propagation_policy="Background")

    def test_many_documents_are_created_from_yaml(self):
        documents = [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"yaml-{at}"}} for at in range(3)
        ] + [{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "yaml"},
              "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}}]
        made = utils.create_from_yaml(client.ApiClient(), yaml_objects=documents, namespace=namespace)
        self.assertEqual(len(made), 4)

    def test_tokens_and_access(self):
        token = core.create_namespaced_service_account_token(
            "default", namespace, client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[]))
        ).status.token
        review = client.AuthenticationV1Api().create_token_review(
            client.V1TokenReview(spec=client.V1TokenReviewSpec(token=token))
        )
        self.assertEqual(review.status.user.username, f"system:serviceaccount:{namespace}:default")
        attributes = client.V1ResourceAttributes(verb="delete", resource="pods", namespace=namespace)
        asked = client.V1SelfSubjectAccessReview(spec=client.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes))
        self.assertTrue(client.AuthorizationV1Api().create_self_subject_access_review(asked).status.allowed)
        own = client.Configuration.get_default_copy()
        own.cert_file, own.key_file, own.api_key = None, None, {"authorization": f"Bearer {token}"}
        with client.ApiClient(own) as robot, self.assertRaises(ApiException) as refused:
            client.CoreV1Api(robot).list_namespaced_pod(namespace)
        self.assertEqual(refused.exception.status, 403)


class Informers(unittest.TestCase):
    def test_a_watch_resumes_where_the_last_one_ended(self):
        listed = core.list_namespaced_config_map(namespace)
        core.create_namespaced_config_map(namespace, config_map("resumed", a="0"))
        seen, version = [], listed.metadata.resource_version
        for at in range(1, 4):
            core.patch_namespaced_config_map("resumed", namespace, {"data": {"a": str(at)}})
            # Each round is a connection of its own that begins where the one before left off.
            for event in watch.Watch().stream(
                core.list_namespaced_config_map, namespace, resource_version=version,
                field_selector="metadata.name=resumed", timeout_seconds=SOON,
            ):
                seen.append((event["type"], event["object"].data["a"]))
                version = event["object"].metadata.resource_version
                if event["object"].data["a"] == str(at):
                    break
        self.assertEqual(seen, [("ADDED", "0")] + [("MODIFIED", str(at)) for at in range(1, 4)])

    def test_a_watch_ends_when_its_time_is_over(self):
        began = time.monotonic()
        events = list(watch.Watch().stream(
            core.list_namespaced_config_map, namespace, field_selector="metadata.name=absent", timeout_seconds=1
        ))
        self.assertEqual(events, [])
        self.assertGreaterEqual(time.monotonic() - began, 1)

    def test_bookmarks_tell_how_far_a_watch_is(self):
        watching = watch.Watch()
        listed = core.list_namespaced_config_map(namespace)
        bookmarks = []
        for event in watching.stream(
            core.list_namespaced_config_map, namespace, send_initial_events=True, allow_watch_bookmarks=True,
            resource_version_match="NotOlderThan", resource_version=listed.metadata.resource_version,
            timeout_seconds=SOON,
        ):
            if event["type"] == "BOOKMARK":
                bookmarks.append(event["raw_object"]["metadata"])
                break
            self.assertEqual(event["type"], "ADDED")
        self.assertEqual(bookmarks[0]["annotations"], {"k8s.io/initial-events-end": "true"})
        self.assertGreaterEqual(int(bookmarks[0]["resourceVersion"]), int(listed.metadata.resource_version))

    def test_what_is_too_old_is_gone_and_a_new_list_helps(self):
        oldest = core.create_namespaced_config_map(namespace, config_map("worn")).metadata.resource_version
        # More than the server keeps of the past, which is bounded by its size too.
        for at in range(5 + HISTORY // len(MUCH)):
            core.patch_namespaced_config_map("worn", namespace, {"data": {"much": MUCH, "at": str(at)}})
        with self.assertRaises(ApiException) as gone:
            for _ in watch.Watch().stream(
                core.list_namespaced_config_map, namespace, resource_version=oldest, timeout_seconds=SOON
            ):
                self.fail("history is told as if it were whole")
        self.assertEqual(gone.exception.status, 410)
        self.assertIn("Expired: too old resource version", gone.exception.reason)
        listed = core.list_namespaced_config_map(namespace)
        for event in watch.Watch().stream(
            core.list_namespaced_config_map, namespace, resource_version=listed.metadata.resource_version,
            timeout_seconds=1,
        ):
            self.fail(f"{event['type']} of something that was listed")


class Dynamic(unittest.TestCase):
    def setUp(self):
        self.client = dynamic.DynamicClient(client.ApiClient())

    def test_kinds_are_found_by_discovery(self):
        maps = self.client.resources.get(api_version="v1", kind="ConfigMap")
        made = maps.create(body={"metadata": {"generateName": "dynamic-"}, "data": {"a": "1"}}, namespace=namespace)
        name = made.metadata.name
        self.assertRegex(name, "^dynamic-[bcdfghjklmnpqrstvwxz2456789]{5}$")
        self.assertEqual(maps.get(name=name, namespace=namespace).data.a, "1")
        with self.assertRaises(ConflictError):
            maps.replace(body={"metadata": {"name": name, "resourceVersion": "1"}}, namespace=namespace)
        applied = maps.server_side_apply(
            body={"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"b": "2"}},
            namespace=namespace, field_manager="dynamic",
        )
        self.assertEqual(applied.data.to_dict(), {"a": "1", "b": "2"})
        for event in maps.watch(namespace=namespace, name=name, timeout=SOON):
            self.assertEqual((event["type"], event["object"].data.b), ("ADDED", "2"))
            break
        maps.delete(name=name, namespace=namespace)
        with self.assertRaises(NotFoundError):
            maps.get(name=name, namespace=namespace)

    def test_every_kind_that_is_announced_can_be_listed(self):
        counted = 0
        for resource in self.client.resources.search():
            if type(resource) is dynamic.Resource and "list" in resource.verbs:
                listed = resource.get()
                self.assertEqual(listed.kind, f"{resource.kind}List", resource.group_version)
                counted += 1
        self.assertGreater(counted, 30)

    def test_custom_objects_can_be_any_objects(self):
        custom = client.CustomObjectsApi()
        listed = custom.list_namespaced_custom_object("apps", "v1", namespace, "replicasets")
        self.assertEqual((listed["kind"], listed["items"]), ("ReplicaSetList", []))
        with self.assertRaises(ApiException) as absent:
            custom.list_cluster_custom_object("example.com", "v1", "unheards")
        self.assertEqual(absent.exception.status, 404)


class Pods(unittest.TestCase):
    def test_a_pod_is_watched_spoken_to_and_leaves(self):
        core.create_namespaced_pod(namespace, pod("lively"))
        wait_for_pod("lively", is_ready)
        # What it says is there a moment after it runs.
        words, heard = [], threading.Event()
        following = threading.Thread(target=self.follow, args=(words, heard))
        following.start()
        self.assertTrue(heard.wait(SOON))
        self.assertEqual(core.read_namespaced_pod_log("lively", namespace), "hello\n")
        said = stream.stream(
            core.connect_get_namespaced_pod_exec, "lively", namespace, command=["sh", "-c", "echo out; echo err >&2"],
            stdout=True, stderr=True, stdin=False, tty=False,
        )
        self.assertEqual(sorted(said.split()), ["err", "out"])
        self.converse()
        left = core.delete_namespaced_pod("lively", namespace, grace_period_seconds=20)
        self.assertEqual((left.metadata.deletion_grace_period_seconds, left.metadata.generation), (20, 2))
        wait_for_pod("lively", lambda seen: seen is None)
        following.join(SOON)
        self.assertEqual(words, ["hello", "goodbye"])

    @staticmethod
    def follow(words, heard):
        for line in watch.Watch().stream(core.read_namespaced_pod_log, "lively", namespace, follow=True):
            words.append(line)
            heard.set()

    def converse(self):
        shell = stream.stream(
            core.connect_get_namespaced_pod_exec, "lively", namespace, command=["sh"],
            stdout=True, stderr=True, stdin=True, tty=False, _preload_content=False,
        )
        shell.write_stdin("echo one\n")
        self.assertEqual(shell.readline_stdout(timeout=SOON), "one")
        shell.write_stdin("exit 3\n")
        shell.run_forever(timeout=SOON)
        self.assertEqual(shell.returncode, 3)

    def test_an_eviction_is_a_delete_that_asks(self):
        core.create_namespaced_pod(namespace, pod("evicted"))
        wait_for_pod("evicted", is_ready)
        eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name="evicted", namespace=namespace))
        answer = core.create_namespaced_pod_eviction("evicted", namespace, eviction, _preload_content=False)
        self.assertEqual(answer.status, 201)
        wait_for_pod("evicted", lambda seen: seen is None)


if __name__ == "__main__":
    unittest.main()
